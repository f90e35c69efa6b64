"""Device operations behind one small port: `interface.Ops`; `cpu` serves, `reference` is the oracle of the tests."""
