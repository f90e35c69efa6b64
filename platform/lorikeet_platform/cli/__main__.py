"""`python -m lorikeet_platform.cli`: the command `lorikeet`, for the supervisor's children."""

from __future__ import annotations

from lorikeet_platform.cli import main

main()
