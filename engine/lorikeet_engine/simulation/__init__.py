"""The engine's deciding side under a virtual clock, with a device that is arithmetic. Knows no tensors."""
