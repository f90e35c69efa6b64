"""`python -m lorikeet_platform.tools.monitoring`, in the source tree: writes the files anew."""

from __future__ import annotations

from pathlib import Path

from lorikeet_platform.tools.monitoring.files import contents

if __name__ == "__main__":
    for name, text in contents().items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
