"""Where the time of steps goes: a port that the loop tells its phases, and a recorder that Perfetto can read."""
