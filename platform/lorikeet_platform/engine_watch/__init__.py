"""The engine as seen over time: samples of its figures, and what they say about both of its machines."""
