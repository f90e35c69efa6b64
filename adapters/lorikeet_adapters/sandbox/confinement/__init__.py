"""What a child takes from itself before it looks at a stranger's bytes: resources, and then nearly all system calls."""
