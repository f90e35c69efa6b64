"""The dashboard's built files: assets as they are, any other address the page itself, which routes on its own."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import FileResponse, HTMLResponse, Response

from lorikeet_platform.errors import PlatformError
from lorikeet_platform.web.access import Public

# Mantine writes style attributes; scripts come from our own files only.
SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "referrer-policy": "same-origin",
    "x-frame-options": "DENY",
}
HSTS = {"strict-transport-security": "max-age=31536000"}
# Paths of the API: an unknown one is an error in the common shape, never the page.
API_PREFIXES = ("admin/", "auth/", "v1/")
ASSET_AGE = "public, max-age=31536000, immutable"  # their names hold a digest of their content
NOT_BUILT = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Lorikeet</title>
<h1>Lorikeet</h1><p>The dashboard's pages are not built. Run <code>make ui</code>, then load this page again.</p>
</html>"""


def pages_router(static_dir: Path) -> APIRouter:
    """Serves `static_dir`; must be the last router of its application."""
    router = APIRouter(include_in_schema=False, dependencies=[Public])
    root = static_dir.resolve()

    @router.get("/{path:path}")
    def page(path: str) -> Response:
        if path.startswith(API_PREFIXES):
            raise PlatformError("not_found")
        file = _file_at(root, path)
        if file is not None:
            return FileResponse(file, headers={"cache-control": ASSET_AGE} if path.startswith("assets/") else None)
        if path.startswith("assets/"):
            raise PlatformError("not_found")
        index = root / "index.html"
        return FileResponse(index) if index.is_file() else HTMLResponse(NOT_BUILT)

    return router


def _file_at(root: Path, path: str) -> Path | None:
    """The file under `root`, if the address means one."""
    try:
        file = (root / path).resolve()
        return file if file.is_file() and file.is_relative_to(root) else None
    except OSError:  # such as a name longer than the file system allows
        return None
