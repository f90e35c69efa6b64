"""Adapters on the device: the arena of bytes, the runs of a step, the loading of images."""
