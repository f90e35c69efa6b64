"""The engine: decides (scheduling, memory; integers, no torch) and computes (execution, models, ops; tensors)."""
