"""How a device's memory is divided and what it then carries: arithmetic for engines and for planners, no tensors."""
