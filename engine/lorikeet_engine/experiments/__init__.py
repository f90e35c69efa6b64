"""Load on an engine under controlled conditions: a grid of setups, run on a simulator or a device, kept as a record."""
