"""Measuring an adapter before it is served: our arithmetic beside PEFT's, and its neighbours with it and without it."""
