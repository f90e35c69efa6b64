"""KV blocks in the pool, in the prefix cache and in host memory: integers only."""
