"""The two HTTP interfaces as the commands use them: JSON in, JSON out, errors as exit codes.

Keys come from the environment and from files, never from the command line, where other users could read them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import httpx

from lorikeet_platform.cli.console import CommandFailed, ExitCode

API_KEY = "LORIKEET_API_KEY"
ADMIN_TOKEN_FILE = "LORIKEET_ADMIN_TOKEN_FILE"  # a file's name, not a secret
TIMEOUT_S = 90.0  # longer than the server waits for anything: a verdict 30 s, an adapter that loads 60 s
NO_CONTENT = 204

QUOTA_CODES = frozenset({"adapter_quota_exceeded", "key_quota_exceeded"})
EXIT_BY_STATUS = {
    400: ExitCode.USAGE,
    401: ExitCode.AUTH,
    403: ExitCode.AUTH,
    404: ExitCode.USAGE,
    409: ExitCode.CONFLICT,
    413: ExitCode.QUOTA,
    422: ExitCode.REJECTED,
    429: ExitCode.QUOTA,
    507: ExitCode.QUOTA,
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error answer of the server."""

    status: int
    code: str
    message: str
    retry_after_s: float | None = None
    should_retry: bool = False

    @classmethod
    def of(cls, status: int, content: bytes, headers: Mapping[str, str]) -> Refusal:
        error = _error_object(content)
        advice = headers.get("x-should-retry")
        return cls(
            status=status,
            code=str(error.get("code", f"http_{status}")),
            message=str(error.get("message", f"the server answered with status {status}")),
            retry_after_s=_seconds(headers),
            should_retry=advice == "true" if advice else status in (408, 429) or status >= 500,
        )

    @property
    def exit_code(self) -> ExitCode:
        if self.code in QUOTA_CODES:
            return ExitCode.QUOTA
        return EXIT_BY_STATUS.get(self.status, ExitCode.NETWORK if self.status >= 500 else ExitCode.FAILED)


class ApiRefused(CommandFailed):
    """The server answered with an error; `refusal` has the details."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.exit_code, f"{refusal.message} ({refusal.code})")
        self.refusal = refusal


class ApiUnreachable(CommandFailed):
    """No answer at all."""

    def __init__(self, url: str, error: Exception) -> None:
        super().__init__(ExitCode.NETWORK, f"cannot reach {url}: {error or type(error).__name__}")


class Api:
    """One HTTP interface with its credential."""

    def __init__(self, url: str, credential: str) -> None:
        self.url = url.rstrip("/")
        self.headers = {"Authorization": f"Bearer {credential}"}
        bypass_proxy_for_loopback(self.url)
        self.http = httpx.Client(base_url=self.url, headers=self.headers, timeout=TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def get(self, path: str, **params: str | int) -> Any:
        return self._ask("GET", path, params=params)

    def post(self, path: str, body: Mapping[str, object] | None = None) -> Any:
        return self._ask("POST", path, json={} if body is None else body)

    def put(self, path: str, body: Mapping[str, object], *, if_revision: int | None = None) -> Any:
        headers = {} if if_revision is None else {"If-Match": f'"{if_revision}"'}
        return self._ask("PUT", path, json=body, headers=headers)

    def patch(self, path: str, body: Mapping[str, object]) -> Any:
        return self._ask("PATCH", path, json=body)

    def delete(self, path: str) -> Any:
        """The answer's body, None when it has none."""
        return self._ask("DELETE", path)

    @contextmanager
    def download(self, path: str, **params: str | int) -> Iterator[Iterator[bytes]]:
        """The pieces of a file, as they come; raises ApiUnreachable where it breaks off."""
        try:
            with self.http.stream("GET", path, params=params) as response:
                if response.is_error:
                    raise ApiRefused(Refusal.of(response.status_code, response.read(), response.headers))
                yield response.iter_bytes()
        except httpx.HTTPError as error:
            raise ApiUnreachable(self.url, error) from None

    def _ask(self, method: str, path: str, **options: Any) -> Any:
        try:
            response = self.http.request(method, path, **options)
        except httpx.HTTPError as error:
            raise ApiUnreachable(self.url, error) from None
        if response.is_error:
            raise ApiRefused(Refusal.of(response.status_code, response.content, response.headers))
        if response.status_code == NO_CONTENT:
            return None
        try:
            return response.json()
        except ValueError:
            raise CommandFailed(ExitCode.NETWORK, f"{self.url} does not answer like a Lorikeet server") from None


def tenant_api(api_url: str) -> Api:
    """The tenant API at `api_url`, with the key of the environment."""
    key = os.environ.get(API_KEY, "")
    if not key:
        raise CommandFailed(ExitCode.AUTH, f"set {API_KEY} to your API key (lk_…)")
    return Api(api_url, key)


def admin_api(admin_url: str) -> Api:
    """The admin API at `admin_url`, with the token file that the gateway wrote."""
    from lorikeet_platform.settings import Settings

    named = os.environ.get(ADMIN_TOKEN_FILE)
    path = Path(named) if named else Settings().data_dir / "admin.token"
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        hint = f"run this in the folder where the gateway runs, or set {ADMIN_TOKEN_FILE}"
        raise CommandFailed(ExitCode.AUTH, f"cannot read the administrator's token file {path}; {hint}") from None
    return Api(admin_url, token)


def bypass_proxy_for_loopback(url: str) -> None:
    """A proxy meant for the outside world must not get requests to this very machine."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host == "::1" or host.startswith("127."):
        known = [entry for entry in os.environ.get("NO_PROXY", os.environ.get("no_proxy", "")).split(",") if entry]
        if host not in known:
            os.environ["NO_PROXY"] = os.environ["no_proxy"] = ",".join([*known, host])


def _error_object(content: bytes) -> dict[str, object]:
    try:
        body = httpx.Response(200, content=content).json()
    except ValueError:
        return {}
    error = body.get("error") if isinstance(body, dict) else None
    return error if isinstance(error, dict) else {}


def _seconds(headers: Mapping[str, str]) -> float | None:
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            return float(headers[name]) / unit
        except (KeyError, ValueError):
            continue
    return None
