"""One generation as the engine sees it: token ids in, token ids out, and how far it has come."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.scheduling.plan import SamplingParams


class FinishReason(StrEnum):
    """Why the engine ended a request; the API's words."""

    STOP = "stop"
    LENGTH = "length"


@dataclass(slots=True, kw_only=True)
class Request:
    """State of one request.

    Attributes:
        prompt: token ids, at least one.
        output: tokens sampled so far; the newest is not in the KV cache yet.
        n_computed: tokens whose keys and values a finished step has written.
    """

    request_id: str
    tenant: str
    prompt: tuple[int, ...]
    max_tokens: int
    sampling: SamplingParams
    adapter: AdapterKey | None
    output: list[int] = field(default_factory=list)
    n_computed: int = 0

    @property
    def n_total(self) -> int:
        """Tokens it holds if it runs to `max_tokens`."""
        return len(self.prompt) + self.max_tokens

    @property
    def in_prefill(self) -> bool:
        return self.n_computed < len(self.prompt)

    @property
    def n_left_to_compute(self) -> int:
        return len(self.prompt) + len(self.output) - self.n_computed

    def tokens(self, start: int, stop: int) -> tuple[int, ...]:
        """Token ids at positions `start … stop - 1` of prompt and output together."""
        n_prompt = len(self.prompt)
        if stop <= n_prompt:
            return self.prompt[start:stop]
        return self.prompt[start:] + tuple(self.output[max(0, start - n_prompt) : stop - n_prompt])
