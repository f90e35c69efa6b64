"""The rules, by subject. Each is a pure function that says one thing, or nothing where it has not seen enough."""
