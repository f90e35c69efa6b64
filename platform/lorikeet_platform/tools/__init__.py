"""Instruments that are no part of serving: they look at engines from outside."""
