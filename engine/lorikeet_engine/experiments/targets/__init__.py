"""On what it is asked: a device that is arithmetic under a virtual clock, or a real engine in this process."""
