"""What runs in the next step. Pure Python: no torch, no clock, no I/O; time is an argument."""
