"""The built dashboard as package data. Knows where its files lie; serving them is the platform's work."""

from __future__ import annotations

from pathlib import Path


def static_dir() -> Path:
    """The folder of the built pages; it has no `index.html` until `npm run build` has run in `admin_ui`."""
    return Path(__file__).parent / "static"
