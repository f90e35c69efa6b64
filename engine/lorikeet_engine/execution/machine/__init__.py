"""What the machine offers a process: devices, number formats, threads, and the memory that there is to divide."""
