"""A jail for what reads files that strangers sent: a child process that can compute, answer, and nothing else."""
