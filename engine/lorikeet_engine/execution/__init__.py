"""Carrying out a step: staging, forward pass, sampling, the KV tensors and the memory table."""
