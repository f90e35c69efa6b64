"""The decoder of the Llama family, its weights and the records that its layers pass down."""
