"""Which OpenAI fields we know without acting on them: one table for both inference routes.

A field that would change the answer is refused unless its value asks for what happens anyway; a field that would not
is ignored. Fields in neither place, and not in the request models, are unknown: a typing error is never
served as if it had been understood.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from lorikeet_platform.errors import MAX_QUOTED, PlatformError, quoted

# They say how to bill or what to keep, never what to answer. Who is asking (`user`) is read, for sticky aliases.
IGNORED: Final = frozenset(
    {
        "metadata",
        "parallel_tool_calls",  # tools themselves are refused
        "prediction",  # a hint for speed
        "prompt_cache_key",
        "prompt_cache_retention",
        "store",
    }
)

# Field -> the values that change nothing. Anything else is refused by name.
UNSUPPORTED: Final[Mapping[str, tuple[object, ...]]] = {
    "audio": (),
    "best_of": (1,),
    "echo": (False,),
    "frequency_penalty": (0, 0.0),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "logit_bias": ({},),
    "logprobs": (False,),
    "modalities": (["text"],),
    "moderation": (),
    "presence_penalty": (0, 0.0),
    "reasoning_effort": (),
    "response_format": ({"type": "text"},),
    "service_tier": ("auto", "default"),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
    "verbosity": ("medium",),
    "web_search_options": (),
}


def take_supported(body: Mapping[str, object], supported: Collection[str]) -> dict[str, object]:
    """The part of `body` that the request models read; null counts as absent.

    Raises PlatformError `unsupported_parameter` or `unknown_parameter`, naming the first such field.
    """
    taken: dict[str, object] = {}
    for name, value in body.items():
        if value is None or name in IGNORED:
            continue
        if name in supported:
            taken[name] = value
        elif name not in UNSUPPORTED:
            raise PlatformError("unknown_parameter", f"unknown parameter: {quoted(name)}", param=name[:MAX_QUOTED])
        elif not any(_is_same(value, harmless) for harmless in UNSUPPORTED[name]):
            raise PlatformError("unsupported_parameter", _refusal(name), param=name)
    return taken


def _is_same(value: object, harmless: object) -> bool:
    # Python takes True for 1 and False for 0; a caller who writes `"n": true` does not mean 1.
    return type(value) is type(harmless) and value == harmless


def _refusal(name: str) -> str:
    harmless = [value for value in UNSUPPORTED[name] if not isinstance(value, float)]
    if not harmless:
        return f"{name} is not supported by this server"
    allowed = " or ".join(repr(value) for value in harmless)
    return f"{name} is not supported by this server; leave it out or send {allowed}"
