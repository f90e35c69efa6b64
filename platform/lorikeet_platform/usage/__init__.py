"""One record for every request that was admitted, settled exactly once."""
