"""The demo: two tenants, a key and adapters each, made through the same HTTP interfaces that users have.

Everything is reused when it is there: tenants by name, keys from `demo.json` if they still work, and versions because
the server recognises content that it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lorikeet_adapters.demo.styles import demo_adapters
from lorikeet_platform.cli.api import Api, ApiRefused
from lorikeet_platform.cli.console import CommandFailed, ExitCode, say
from lorikeet_platform.cli.embedded.welcome import DemoTenant, known_keys
from lorikeet_platform.cli.upload.push import PushRequest, push_adapter, wait_for_verdict

KEY_NAME: Final = "demo"
READY_WITHIN_S: Final = 900.0  # a certificate takes seconds here and minutes on a small machine


@dataclass(frozen=True, slots=True)
class Plan:
    """What one demo tenant shall have."""

    slug: str
    display_name: str
    adapters: tuple[str, ...]


PLANS: Final = (
    Plan("harbour", "Harbour Tours", ("pirate", "haiku")),
    Plan("orchard", "Orchard Analytics", ("json",)),
)


class Seeder:
    """Makes the demo on a running gateway."""

    def __init__(self, *, api_url: str, admin: Api, demo_file: Path) -> None:
        self._api_url = api_url
        self._admin = admin
        self._known_keys = known_keys(demo_file)

    def seed(self) -> tuple[DemoTenant, ...]:
        """Make or find everything; raises CommandFailed."""
        existing = {tenant["slug"] for tenant in self._admin.get("/admin/v1/tenants")["data"]}
        tenants = []
        for plan in PLANS:
            if plan.slug not in existing:
                self._admin.post("/admin/v1/tenants", {"slug": plan.slug, "display_name": plan.display_name})
            key = self._working_key(plan.slug)
            self._push_all(plan, key)
            tenants.append(DemoTenant(plan.slug, key, plan.adapters))
        return tuple(tenants)

    def _working_key(self, slug: str) -> str:
        known = self._known_keys.get(slug)
        if known and self._works(known):
            return known
        path = f"/admin/v1/tenants/{slug}/keys"
        # The name must be free: a key of an earlier demo whose secret is lost is of no use to anybody.
        for key in _active(self._admin.get(path)["data"]):
            self._admin.post(f"{path}/{key['id']}/revoke", {"reason": "its secret is lost"})
        return str(self._admin.post(path, {"name": KEY_NAME})["secret"])

    def _works(self, key: str) -> bool:
        with Api(self._api_url, key) as api:
            try:
                api.get("/v1/models")
            except ApiRefused:
                return False
        return True

    def _push_all(self, plan: Plan, key: str) -> None:
        folders = {adapter.name: adapter.path for adapter in demo_adapters()}
        with Api(self._api_url, key) as api:
            for name in plan.adapters:
                request = PushRequest(folder=folders[name], name=name, wait_s=None, quiet=True)
                self._wait_until_ready(plan, api, request, _unfinished(api, name) or push_adapter(api, request))

    def _wait_until_ready(self, plan: Plan, api: Api, request: PushRequest, version: dict[str, Any]) -> None:
        label = f"{plan.slug}: {request.name}:{version['number']}"
        if version["state"] == "validating":
            say(f"{label} is checked against transformers and PEFT …")
        version = wait_for_verdict(api, request, version, READY_WITHIN_S)
        if version["state"] != "ready":
            reason = f"{version['reject_code']}: {version['reject_detail']}"
            raise CommandFailed(ExitCode.REJECTED, f"the demo adapter {label} is {version['state']}, {reason}")
        say(f"{label} is ready")


def _unfinished(api: Api, name: str) -> dict[str, Any] | None:
    """A version that an earlier start left being checked: pushed again, it would become another one."""
    try:
        versions: list[dict[str, Any]] = api.get(f"/v1/adapters/{name}")["versions"]
    except ApiRefused as failure:
        if failure.refusal.code != "not_found":
            raise
        return None
    return next((version for version in versions if version["state"] == "validating"), None)


def _active(keys: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [key for key in keys if key["name"] == KEY_NAME and key["status"] == "active"]
