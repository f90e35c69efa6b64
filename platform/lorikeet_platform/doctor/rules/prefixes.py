"""Why the prefix cache finds nothing: what stands at the head of prompts, whole blocks, evictions, and who shares."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from lorikeet_engine.stats import PrefixUse, PromptHeads
from lorikeet_platform.doctor.evidence import words
from lorikeet_platform.doctor.evidence.room import larger_pool
from lorikeet_platform.doctor.examined import Seen
from lorikeet_platform.doctor.schemas import Cost, Evidence, Finding
from lorikeet_platform.engine_watch.report import setting_name

LEAST_PROMPTS: Final = 8
LONG_BLOCKS: Final = 2  # prompts of fewer blocks have little to find
RARE_HITS: Final = 0.05  # of the tokens that were looked up
LARGE_SHARE: Final = 0.3  # of a prompt is common to others
SMALLEST_BLOCK: Final = 16
LEAST_MISSES: Final = 8
# Times, dates, counters and identifiers: digits, alone or among hexadecimal letters and their separators.
DYNAMIC: Final = re.compile(r"\s*[0-9a-fA-F:./_-]*[0-9][0-9a-fA-F:./_-]*\s*")
HEXADECIMAL: Final = re.compile(r"\s*[0-9a-fA-F:./_-]+\s*")


@dataclass(frozen=True, slots=True)
class Reader:
    """The prompts of one tenant on one adapter, and what the window says of their look-ups."""

    heads: PromptHeads
    queried: int
    hit: int

    @property
    def hit_rate(self) -> float:
        return self.hit / self.queried if self.queried else 0.0


def dynamic_prompt_head(seen: Seen) -> Finding | None:
    """Prompts differ within their first block, in something that looks like a time, a number or an id."""
    if not seen.design.knobs["enable_prefix_caching"]:
        return None
    for reader in _without_hits(seen):
        heads = reader.heads
        if heads.tokens is None or heads.common_tokens >= seen.design.block_size:
            continue
        first, second = (seen.around.decode([token]) for token in heads.tokens)
        if not _looks_dynamic(first, second):
            continue
        return Finding(
            rule="dynamic_prompt_head",
            severity="warning",
            title="Something that changes stands at the head of prompts",
            explanation="A prefix is found up to the first token that differs; nothing behind it ever is.",
            evidence=[
                *_who(seen, reader),
                Evidence(label="first different token", value=f"position {heads.common_tokens}"),
                Evidence(label="there", value=f"{first!r} in one prompt, {second!r} in another"),
                Evidence(label="block", value=f"{seen.design.block_size} tokens"),
            ],
            cost=_cost(reader),
            remedy="Put what stays the same first, and times, counters and ids last.",
            setting=None,
        )
    return None


def prefix_alignment(seen: Seen) -> Finding | None:
    """Prompts share a good part, but less than a block; only whole blocks are found again."""
    block_size = seen.design.block_size
    if not seen.design.knobs["enable_prefix_caching"]:
        return None
    for reader in _without_hits(seen, longer_than=0):
        common, mean = reader.heads.common_tokens, reader.heads.mean_tokens
        smaller = 1 << (common.bit_length() - 1) if common else 0
        if not SMALLEST_BLOCK <= smaller < block_size or common < LARGE_SHARE * mean or common >= block_size:
            continue
        return Finding(
            rule="prefix_alignment",
            severity="warning",
            title="Prompts share less than a block",
            explanation="Only whole blocks are found again, and what these prompts have in common does not fill one.",
            evidence=[
                *_who(seen, reader),
                Evidence(label="common head", value=f"{common} tokens of {mean:.0f}"),
                Evidence(label="block", value=f"{block_size} tokens"),
            ],
            cost=_cost(reader, part=smaller / mean),
            remedy=f"Blocks of {smaller} tokens would be found; or lengthen what the prompts share.",
            setting=f"{setting_name('block_size')}={smaller}",
        )
    return None


def prefix_caching_off(seen: Seen) -> Finding | None:
    """Prompts share whole blocks, and the cache is switched off."""
    if seen.design.knobs["enable_prefix_caching"]:
        return None
    for heads in seen.prompts:
        share = heads.common_tokens / heads.mean_tokens if heads.mean_tokens else 0.0
        if heads.n_prompts >= LEAST_PROMPTS and heads.common_tokens >= seen.design.block_size and share >= LARGE_SHARE:
            return Finding(
                rule="prefix_caching_off",
                severity="warning",
                title="Prompts begin alike, and prefix caching is off",
                explanation="Every prompt computes again what the one before it has computed.",
                evidence=[
                    Evidence(label="prompts of", value=seen.around.names.adapter(heads.tenant, heads.adapter)),
                    Evidence(label="compared", value=f"{heads.n_prompts} prompts"),
                    Evidence(label="common head", value=f"{heads.common_tokens} tokens of {heads.mean_tokens:.0f}"),
                ],
                cost=Cost(text=f"{words.percent(share)} of these prompts' tokens are computed again", share=share),
                remedy="Switch prefix caching on.",
                setting=f"{setting_name('enable_prefix_caching')}=true",
            )
    return None


def prefix_evicted(seen: Seen) -> Finding | None:
    """Prefixes were cached, and their room was needed before they were used again."""
    misses, window, design = seen.window.misses, seen.window, seen.design
    n, total = misses.get("evicted", 0), sum(misses.values())
    use = _whole(seen)
    if n < LEAST_MISSES or 2 * n < total or use.hit_tokens > 0.5 * use.queried_tokens:
        return None
    pool_bytes = design.n_blocks * design.block_bytes
    setting, share = larger_pool(seen, "kv_cache_bytes", 2 * pool_bytes), n / total
    remedy = "Give the KV pool more room: memory is left." if setting else "No memory is left: add an engine."
    return Finding(
        rule="prefix_evicted",
        severity="warning",
        title="Cached prefixes are dropped before they are used again",
        explanation="Most prompts miss a block that the cache had and gave up, because running requests needed room.",
        evidence=[
            Evidence(label="prompts that missed an evicted block", value=f"{n} of {total} that missed any"),
            Evidence(label="hit rate", value=_rate(use.hit_tokens, use.queried_tokens)),
            Evidence(label="KV pool", value=words.n_bytes(pool_bytes)),
            Evidence(label="of it cached now", value=words.n_bytes(window.after.kv.cached)),
            Evidence(label="memory left", value=words.n_bytes(max(0, dict(design.memory).get("left", 0)))),
        ],
        cost=Cost(text=f"{words.percent(share)} of the misses would have been hits", share=share),
        remedy=remedy,
        setting=setting,
    )


def prefix_split(seen: Seen) -> Finding | None:
    """The same tokens are known, but under another salt or for another adapter."""
    misses = seen.window.misses
    salts, versions, total = misses.get("salt", 0), misses.get("adapter_version", 0), sum(misses.values())
    n, use = salts + versions, _whole(seen)
    if n < LEAST_MISSES or 2 * n < total or use.hit_tokens > 0.5 * use.queried_tokens:
        return None
    share = n / total
    by_salt = salts >= versions
    return Finding(
        rule="prefix_split",
        severity="warning",
        title=f"Equal prompts do not meet: another {'cache salt' if by_salt else 'adapter'}",
        explanation="A prefix is shared only within one tenant, one salt and one version of one adapter.",
        evidence=[
            Evidence(label="missed under another salt", value=f"{salts} of {total} prompts that missed"),
            Evidence(label="missed for another adapter or version", value=f"{versions} of {total}"),
            Evidence(label="hit rate", value=_rate(use.hit_tokens, use.queried_tokens)),
        ],
        cost=Cost(text=f"{words.percent(share)} of the misses had the same tokens before them", share=share),
        remedy="Use one salt for requests that may share; send equal prompts to one version, and end canaries soon.",
        setting=None,
    )


def _without_hits(seen: Seen, *, longer_than: int = LONG_BLOCKS) -> list[Reader]:
    """Tenants' prompts that could find something and found next to nothing, the busiest first."""
    readers = [_reader(seen, heads) for heads in seen.prompts if heads.n_prompts >= LEAST_PROMPTS]
    found = [
        reader
        for reader in readers
        if reader.queried
        and reader.hit_rate <= RARE_HITS
        and reader.heads.mean_tokens > longer_than * seen.design.block_size
    ]
    return sorted(found, key=lambda reader: -reader.queried)


def _reader(seen: Seen, heads: PromptHeads) -> Reader:
    """By the window's look-ups; by all that the engine remembers where the window has none."""
    older, newer = (_use_of(stats.prefix.uses, heads) for stats in (seen.window.before, seen.window.after))
    if newer is None:
        return Reader(heads, heads.queried_tokens, heads.hit_tokens)
    queried, hit = newer.queried_tokens, newer.hit_tokens
    if older is not None and older.queried_tokens <= queried:
        queried, hit = queried - older.queried_tokens, hit - older.hit_tokens
    return Reader(heads, queried, hit)


def _use_of(uses: list[PrefixUse], heads: PromptHeads) -> PrefixUse | None:
    return next((use for use in uses if (use.tenant, use.adapter) == (heads.tenant, heads.adapter)), None)


def _whole(seen: Seen) -> PrefixUse:
    """The window's look-ups of everybody."""
    before, after = seen.window.before.prefix.uses, seen.window.after.prefix.uses
    queried = sum(use.queried_tokens for use in after) - sum(use.queried_tokens for use in before)
    hit = sum(use.hit_tokens for use in after) - sum(use.hit_tokens for use in before)
    return PrefixUse(tenant="", adapter="", queried_tokens=queried, hit_tokens=hit)


def _looks_dynamic(first: str, second: str) -> bool:
    pair = (first, second)
    return any(DYNAMIC.fullmatch(text) for text in pair) and all(HEXADECIMAL.fullmatch(text) for text in pair)


def _who(seen: Seen, reader: Reader) -> list[Evidence]:
    heads = reader.heads
    return [
        Evidence(label="prompts of", value=seen.around.names.adapter(heads.tenant, heads.adapter)),
        Evidence(label="compared", value=f"{heads.n_prompts} prompts, {heads.mean_tokens:.0f} tokens on average"),
        Evidence(label="hit rate", value=_rate(reader.hit, reader.queried)),
    ]


def _cost(reader: Reader, part: float = 1.0) -> Cost:
    n_tokens = reader.queried - reader.hit
    text = f"{words.count(n_tokens)} prompt tokens were computed, most of them perhaps in vain"
    return Cost(text=text, share=part * (1 - reader.hit_rate))


def _rate(hit: int, queried: int) -> str:
    share = hit / queried if queried else 0.0
    return f"{words.percent(share)} of {queried:,} tokens"
