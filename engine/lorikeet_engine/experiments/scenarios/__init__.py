"""What is asked: setups that differ in one thing or in a few, by name or from a file."""
