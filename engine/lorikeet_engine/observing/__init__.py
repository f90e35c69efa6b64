"""What an operator wants to know of a running engine: how long things took, for whom, and what adapters cost.

Watches the loop and decides nothing. Standard library only, and no clock: every time is told.
"""
