"""Symptoms of an engine by rules: what is wrong, the evidence, what it costs, and which setting helps."""
