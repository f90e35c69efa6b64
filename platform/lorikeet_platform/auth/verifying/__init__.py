"""The parts of checking a key: what is remembered of an earlier check, what the database says, who was here last."""
