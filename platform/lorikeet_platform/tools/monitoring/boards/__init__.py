"""The dashboards: one for each question that an operator asks. Single tenants are the admin pages' matter."""

from collections.abc import Sequence
from typing import Final

from lorikeet_platform.tools.monitoring.boards.engine import ADAPTERS, ENGINE
from lorikeet_platform.tools.monitoring.boards.service import SECURITY, SERVICE
from lorikeet_platform.tools.monitoring.boards.tenants import BOOKS, FAIRNESS
from lorikeet_platform.tools.monitoring.panels import Board

BOARDS: Final[Sequence[Board]] = (SERVICE, ENGINE, ADAPTERS, FAIRNESS, BOOKS, SECURITY)
