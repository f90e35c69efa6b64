"""What arrives at a simulated engine: described in a file, or recorded. Knows nothing of the engine's answers."""
