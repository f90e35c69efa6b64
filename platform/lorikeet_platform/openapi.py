"""`python -m lorikeet_platform.openapi tenant|admin` prints an API's schema; the dashboard's client is made from it.

Routes are looked at, never called, so the context behind them may be empty.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any, cast

from lorikeet_adapters.store.local import LocalBlobStore
from lorikeet_engine.client import EngineClient
from lorikeet_platform.app import build_context, create_admin_app, create_tenant_app
from lorikeet_platform.db.session import Database
from lorikeet_platform.settings import Settings

APPS = {"tenant": create_tenant_app, "admin": create_admin_app}


def schema(which: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(data_dir=Path(folder))
        context = build_context(
            settings,
            db=Database(settings.resolved_database_url),
            store=LocalBlobStore(Path(folder) / "blobs"),
            engine_client=cast(EngineClient, None),
            wake=lambda _job_id: None,
        )
        return APPS[which](context).openapi()


def main() -> None:
    if len(sys.argv) != 2 or sys.argv[1] not in APPS:
        sys.exit(f"usage: python -m lorikeet_platform.openapi {'|'.join(APPS)}")
    json.dump(schema(sys.argv[1]), sys.stdout, indent=1)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
