"""Adapters in host memory and in the arena: integers only."""
