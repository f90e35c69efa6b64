"""The pictures, by what they show; each is None where the run has nothing to show it with."""
