"""The engine's Prometheus metrics, read from its latest figures when somebody scrapes.

Nothing is counted twice: the loop and the ledgers hold the numbers, this package names them and writes them down.
Tenants and adapters are labels only where a name says so, and only the busiest of them; the others are "other". Who is
no longer among them has no series any more, and what it did is in none of the others, so that none of them leaps.
"""

from lorikeet_engine.metrics.collector import EngineCollector
from lorikeet_engine.metrics.exposition import render
from lorikeet_engine.metrics.families import POOL_STATES, families, process

__all__ = ["POOL_STATES", "EngineCollector", "families", "process", "render"]
