"""The commands, a file a group: arguments in, console output out; the work is done elsewhere."""
