"""What a finished start leaves behind: a short text, and the same facts in `demo.json` for programs."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from lorikeet_platform.accounts.owner_token import issue_owner_token
from lorikeet_platform.clock import now_us
from lorikeet_platform.db.session import Database
from lorikeet_platform.settings import Settings

QUESTION = "What is the capital of France?"


@dataclass(frozen=True, slots=True)
class DemoTenant:
    """A demo tenant with its key; the first adapter is the one its curl line asks."""

    slug: str
    key: str
    adapters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Demo:
    """All that a newcomer, a test or a script needs to send requests."""

    api: str
    admin: str
    owner_token: str
    base_model: str
    tenants: tuple[DemoTenant, ...]

    def write(self, path: Path) -> None:
        """Replace `path`, readable by its owner only: it holds keys."""
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(asdict(self), file, indent=2)
            file.write("\n")
        draft.replace(path)


def known_keys(path: Path) -> dict[str, str]:
    """Keys by tenant that an earlier start wrote; they may have been revoked since."""
    try:
        tenants = json.loads(path.read_text(encoding="utf-8"))["tenants"]
        return {str(tenant["slug"]): str(tenant["key"]) for tenant in tenants}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def new_owner_token(settings: Settings) -> str:
    """A fresh one-time token for the owner's link; earlier unused ones are void."""
    database = Database(settings.resolved_database_url, platform_url=settings.database_platform_url)
    try:
        with database.platform.unit_of_work() as work:
            return issue_owner_token(work, now_us())
    finally:
        database.close()


def owner_link(admin: str, token: str) -> str:
    return f"{admin}/sign-in?token={token}"


def demo_welcome(demo: Demo) -> str:
    lines = [*_addresses(demo.api, demo.admin, demo.owner_token), ""]
    for tenant in demo.tenants:
        lines += [
            f"Tenant {tenant.slug}, adapter {tenant.adapters[0]}:",
            _curl(demo.api, tenant.key, tenant.adapters[0]),
        ]
    if demo.tenants:
        lines += [f"The base model, {demo.base_model}:", _curl(demo.api, demo.tenants[0].key, demo.base_model)]
    return "\n".join([*lines, "", "Ctrl-C ends it."])


def plain_welcome(api: str, admin: str, owner_token: str) -> str:
    steps = ["First tenant:  lorikeet tenants create NAME && lorikeet keys create NAME --name first"]
    return "\n".join([*_addresses(api, admin, owner_token), *steps, "", "Ctrl-C ends it."])


def _addresses(api: str, admin: str, owner_token: str) -> Sequence[str]:
    return (
        "",
        "Lorikeet is ready.",
        f"API:        {api}/v1",
        f"Dashboard:  {owner_link(admin, owner_token)}  (this link signs in once)",
    )


def _curl(api: str, key: str, model: str) -> str:
    body = {"model": model, "messages": [{"role": "user", "content": QUESTION}], "temperature": 0, "max_tokens": 80}
    return (
        f"  curl -s {api}/v1/chat/completions -H 'Authorization: Bearer {key}' "
        f"-H 'Content-Type: application/json' -d '{json.dumps(body)}'"
    )
