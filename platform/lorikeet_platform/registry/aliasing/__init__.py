"""Where aliases point, what they said before, and how they change."""
