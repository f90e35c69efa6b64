"""The server under load: where it is, what it serves, and how its two inference routes are asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import httpx
import msgspec

from lorikeet_engine.simulation.workload.strict_records import DescriptionError
from lorikeet_platform.tools.bench.load.address import fits_header, normalised, shown, trouble_with
from lorikeet_platform.tools.bench.load.prompts import FIRST_ID, PromptKind, Prompts

Endpoint = Literal["/v1/completions", "/v1/chat/completions"]
ENDPOINTS: tuple[Endpoint, ...] = ("/v1/completions", "/v1/chat/completions")
VOCAB_SIZE = 1000
LOOK_S = 30.0
ERROR = 400
REFUSED_KEY = (401, 403)


class TargetUnfit(Exception):
    """The server cannot be tested as it was asked for; `is_key` when that is for the key."""

    def __init__(self, message: str, *, is_key: bool = False) -> None:
        super().__init__(message)
        self.is_key = is_key


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Attributes:
    url: without the route's `/v1`.
    model: what requests ask for, unless they ask for an adapter.
    prompts: "ids" need a server that takes token ids as a prompt.
    vocab_size: token ids are drawn below it.
    metrics_url: where its counters are; empty = nobody looks at them.
    n_warmups: requests before the first one that counts.
    """

    url: str
    model: str
    endpoint: Endpoint = "/v1/completions"
    api_key: str = ""
    prompts: PromptKind = "words"
    vocab_size: int = VOCAB_SIZE
    ignore_eos: bool = False
    metrics_url: str = ""
    n_warmups: int = 1

    def __post_init__(self) -> None:
        if self.prompts == "ids" and self.endpoint != "/v1/completions":
            raise TargetUnfit("prompts of token ids exist on /v1/completions only")
        if self.vocab_size <= FIRST_ID:
            raise TargetUnfit(f"a vocab_size of {self.vocab_size} leaves no token ids to draw from")
        if not fits_header(self.api_key):
            raise TargetUnfit("the key holds characters that no key has", is_key=True)

    @property
    def shown_url(self) -> str:
        """The address without anything secret."""
        return shown(self.url)

    def body(self, model: str, units: Sequence[int], max_tokens: int) -> bytes:
        """One request, ready to send; greedy, so that equal seeds ask for equal answers."""
        prompt = Prompts(self.prompts, self.vocab_size).write(units)
        fields: dict[str, Any] = {
            "model": model,
            "max_tokens": max_tokens,
            "temperature": 0.0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.endpoint == "/v1/completions":
            fields["prompt"] = prompt
        else:
            fields["messages"] = [{"role": "user", "content": prompt}]
        if self.ignore_eos:
            fields["ignore_eos"] = True
        return msgspec.json.encode(fields)


def find_target(
    url: str, *, api_key: str, model: str, endpoint: Endpoint, prompts: PromptKind | None, **more: Any
) -> Target:
    """Look at the server's list of models, for what was left open; `more` are fields of `Target`.

    Without `model` the first of the list is asked, and without `prompts` our own servers get token ids where the route
    takes them.

    Raises:
        DescriptionError: that is no address, or one that holds a password beside a key.
        TargetUnfit: nobody answers there, or the key is refused, or the list has no model.
    """
    if trouble := trouble_with(url, has_key=bool(api_key)):
        raise DescriptionError(trouble)
    url = normalised(url)
    if not fits_header(api_key):
        raise TargetUnfit("the key holds characters that no key has", is_key=True)
    if model and prompts is not None:
        return Target(url=url, api_key=api_key, model=model, endpoint=endpoint, prompts=prompts, **more)
    listed = _models(url, api_key, is_needed=not model)
    if not model and not listed:
        raise TargetUnfit(f"{shown(url)}/v1/models names no model; name one with --model")
    is_ours = any("lorikeet" in entry for entry in listed)
    kind: PromptKind = prompts or ("ids" if is_ours and endpoint == "/v1/completions" else "words")
    chosen = model or str(listed[0].get("id", ""))
    return Target(url=url, api_key=api_key, model=chosen, endpoint=endpoint, prompts=kind, **more)


def _models(url: str, api_key: str, *, is_needed: bool) -> list[dict[str, Any]]:
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        # Load goes to the server itself and never through a proxy; so does this look.
        with httpx.Client(timeout=LOOK_S, trust_env=False) as client:
            response = client.get(f"{url}/v1/models", headers=headers)
    except httpx.HTTPError as error:
        raise TargetUnfit(f"cannot reach {shown(url)}: {error or type(error).__name__}") from None
    if response.status_code in REFUSED_KEY:
        raise TargetUnfit(f"{shown(url)} refuses the key (status {response.status_code})", is_key=True)
    if response.status_code >= ERROR:
        if is_needed:
            raise TargetUnfit(
                f"{shown(url)}/v1/models answers with status {response.status_code}; name a model with --model"
            )
        return []
    try:
        data = response.json()["data"]
        return [entry for entry in data if isinstance(entry, dict)]
    except (ValueError, KeyError, TypeError):
        if is_needed:
            raise TargetUnfit(f"{shown(url)}/v1/models is no list of models; name one with --model") from None
        return []
