"""The options of `lorikeet bench serve` as a load and its goals; what contradicts is refused by name.

Options that vLLM's `bench serve` has as well have its names and its meaning, but for what their help says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lorikeet_engine.simulation.workload.description import SharedPrefixes
from lorikeet_engine.simulation.workload.distributions import Arrivals, Lengths
from lorikeet_engine.simulation.workload.strict_records import DescriptionError
from lorikeet_platform.tools.bench.load.description import Load, LoadGroup, NamedAdapters, load_description
from lorikeet_platform.tools.bench.load.prompts import PromptKind
from lorikeet_platform.tools.bench.load.target import VOCAB_SIZE, Endpoint, Target, find_target
from lorikeet_platform.tools.bench.summary import GOAL_METRICS, METRICS

INPUT_LEN, OUTPUT_LEN, NUM_PROMPTS, SEED, ZIPF = 1024, 128, 100, 1, 0.0
MS = 1000.0


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """As they stand on the command line; None = not given."""

    workload: Path | None = None
    trace: Path | None = None
    request_rate: float | None = None
    burstiness: float | None = None
    concurrency: int | None = None
    num_prompts: int | None = None
    duration: float | None = None
    random_input_len: int | None = None
    random_output_len: int | None = None
    random_range_ratio: float | None = None
    random_prefix_len: int | None = None
    lora_modules: Sequence[str] = ()
    zipf: float | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """Likewise, about the server."""

    url: str
    endpoint: Endpoint
    model: str
    prompts: PromptKind | None
    vocab_size: int | None
    ignore_eos: bool
    metrics_url: str
    n_warmups: int


@dataclass(frozen=True, slots=True)
class Judging:
    """How the served requests are looked at: metrics, shares of one, goals in seconds by metric."""

    metrics: Sequence[str]
    shares: Sequence[float]
    goals: Mapping[str, float]


OF_GROUPS = (
    *("request_rate", "burstiness", "concurrency", "lora_modules", "zipf"),
    *("random_input_len", "random_output_len", "random_range_ratio", "random_prefix_len"),
)
OF_ENDS = ("num_prompts", "duration")


def load_of(options: LoadOptions) -> Load:
    """Raises DescriptionError for options that contradict each other, and for what no load can be."""
    if options.workload is not None:
        _refuse_beside(options, "workload", ("trace", *OF_GROUPS, *OF_ENDS))
        load = load_description(options.workload)
        return load if options.seed is None else replace(load, seed=options.seed)
    seed = SEED if options.seed is None else options.seed
    if options.trace is not None:
        _refuse_beside(options, "trace", OF_GROUPS)
        return Load(
            name=options.trace.stem,
            seed=seed,
            trace=str(options.trace),
            n_requests=options.num_prompts or 0,
            duration_s=options.duration or 0.0,
        )
    n_requests = options.num_prompts or (0 if options.duration else NUM_PROMPTS)
    group = LoadGroup(
        name="bench",
        arrivals=_arrivals(options, n_requests),
        prompt=_prompt_lengths(options),
        output=_lengths(options.random_output_len or OUTPUT_LEN, options),
        adapters=_adapters(options),
        shared_prefixes=SharedPrefixes(tokens=options.random_prefix_len) if options.random_prefix_len else None,
    )
    return Load(name="bench", seed=seed, n_requests=n_requests, duration_s=options.duration or 0.0, tenants=(group,))


def target_of(options: TargetOptions, api_key: str) -> Target:
    """Raises DescriptionError for what contradicts, TargetUnfit for a server that cannot be tested so."""
    target = find_target(
        options.url,
        api_key=api_key,
        model=options.model,
        endpoint=options.endpoint,
        prompts=options.prompts,
        vocab_size=options.vocab_size or VOCAB_SIZE,
        ignore_eos=options.ignore_eos,
        metrics_url=options.metrics_url,
        n_warmups=options.n_warmups,
    )
    if options.vocab_size is not None and target.prompts != "ids":
        raise DescriptionError("--vocab-size is about prompts of token ids, and these are words; add --prompts ids")
    return target


def judging_of(metrics: str, percentiles: str, goals: Sequence[str], more_goals: Sequence[str]) -> Judging:
    """`more_goals` stand behind the first one, as vLLM takes them."""
    if more_goals and not goals:
        raise DescriptionError(f"unexpected argument {more_goals[0]!r}")
    return Judging(metrics_of(metrics), shares_of(percentiles), goals_of([*goals, *more_goals]))


def goals_of(words: Sequence[str]) -> dict[str, float]:
    """`ttft:500`, in milliseconds, as vLLM takes them; several in one word apart by spaces or commas. In seconds."""
    goals: dict[str, float] = {}
    for word in " ".join(words).replace(",", " ").split():
        metric, colon, value = word.partition(":")
        if metric not in GOAL_METRICS or not colon:
            raise DescriptionError(f"--goodput takes {', '.join(f'{m}:MS' for m in GOAL_METRICS)}, not {word!r}")
        if metric in goals:
            raise DescriptionError(f"--goodput has two goals for {metric}")
        goals[metric] = _number("--goodput", value, above=0.0) / MS
    return goals


def metrics_of(text: str) -> list[str]:
    """`ttft,tpot,itl,e2el`, or some of them."""
    chosen = [word.strip() for word in text.split(",") if word.strip()]
    unknown = [word for word in chosen if word not in METRICS]
    if unknown or not chosen:
        raise DescriptionError(f"--percentile-metrics takes some of {','.join(METRICS)}, not {text!r}")
    return chosen


def shares_of(text: str) -> list[float]:
    """`50,90,99` as shares of one."""
    shares = [_number("--metric-percentiles", word, above=0.0) / 100 for word in text.split(",")]
    if max(shares) > 1:
        raise DescriptionError(f"--metric-percentiles lie in 0 … 100, not {text}")
    return sorted(set(shares))


def _refuse_beside(options: LoadOptions, given: str, others: Sequence[str]) -> None:
    for name in others:
        if getattr(options, name) not in (None, ()):
            raise DescriptionError(f"--{given} says what is sent, and {_flag(name)} something else; give one of them")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _arrivals(options: LoadOptions, n_requests: int) -> Arrivals:
    rate, concurrency, burstiness = options.request_rate, options.concurrency, options.burstiness
    if concurrency is not None:
        for name in ("request_rate", "burstiness"):
            if getattr(options, name) is not None:
                raise DescriptionError(f"--concurrency waits for answers and {_flag(name)} does not; give one of them")
        return Arrivals(kind="closed", concurrency=concurrency)
    if rate is None:
        raise DescriptionError("say when requests come: --request-rate, --concurrency, --trace or --workload")
    if math.isinf(rate):
        # All at once: so many clients that each sends one.
        if burstiness is not None:
            raise DescriptionError("--burstiness needs a finite --request-rate")
        if not n_requests or options.duration:
            raise DescriptionError("--request-rate inf sends all at once; it needs --num-prompts, and no --duration")
        return Arrivals(kind="closed", concurrency=n_requests)
    if burstiness is not None:
        return Arrivals(kind="gamma", rate=rate, burstiness=burstiness)
    return Arrivals(kind="poisson", rate=rate)


def _prompt_lengths(options: LoadOptions) -> Lengths:
    """The shared head comes before what `--random-input-len` says."""
    head = options.random_prefix_len or 0
    lengths = _lengths(options.random_input_len or INPUT_LEN, options)
    if lengths.kind == "constant":
        return Lengths(value=lengths.value + head)
    return Lengths(kind="uniform", min=lengths.min + head, max=lengths.max + head)


def _lengths(value: int, options: LoadOptions) -> Lengths:
    ratio = options.random_range_ratio or 0.0
    if not 0 <= ratio < 1:
        raise DescriptionError(f"--random-range-ratio must lie in 0 … 1, and below 1, not {ratio:g}")
    if not ratio:
        return Lengths(value=value)
    return Lengths(kind="uniform", min=max(1, math.floor(value * (1 - ratio))), max=math.ceil(value * (1 + ratio)))


def _adapters(options: LoadOptions) -> NamedAdapters | None:
    if not options.lora_modules:
        if options.zipf is not None:
            raise DescriptionError("--zipf is the popularity of --lora-modules, and there are none")
        return None
    names = tuple(name for word in options.lora_modules for name in word.replace(",", " ").split())
    return NamedAdapters(names=names, zipf=ZIPF if options.zipf is None else options.zipf)


def _number(flag: str, text: str, *, above: float) -> float:
    try:
        number = float(text)
    except ValueError:
        raise DescriptionError(f"{flag} takes numbers, not {text!r}") from None
    if not number > above or math.isinf(number):
        raise DescriptionError(f"{flag} takes numbers above {above:g}, not {text!r}")
    return number
