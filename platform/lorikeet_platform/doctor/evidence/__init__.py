"""What rules count and how they say it."""
