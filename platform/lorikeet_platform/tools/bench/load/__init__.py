"""The load generator: what is asked when, sent as it is due, and what came back. Knows nothing of how it is shown."""
