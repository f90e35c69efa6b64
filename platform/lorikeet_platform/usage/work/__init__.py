"""Regular work on the ledger: what the engine still holds, what dead gateways left open, roll-ups, and the check."""
