"""A version's life: sealed out of uploads, its states, what people do to it, and the engine's side of serving it."""
