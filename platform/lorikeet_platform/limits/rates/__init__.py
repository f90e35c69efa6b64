"""Rates: how much may come in a minute and how much at once, counted in one process or in Redis for all of them."""
