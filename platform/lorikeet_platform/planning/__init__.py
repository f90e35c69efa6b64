"""The planner: what a model on a device can carry, from formulas or calibrated by a running engine."""
