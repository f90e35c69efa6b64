"""Inference: the OpenAI-compatible routes, from a parsed body to a settled usage record."""
