"""A server's own counters, read once a second while it is under load."""
