"""Text in and out of token ids. Lives in the engine's client, so it scales with gateways; imports no torch."""
