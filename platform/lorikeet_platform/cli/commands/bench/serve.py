"""`lorikeet bench serve`: a load test of any OpenAI-compatible server."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lorikeet_platform.cli.commands.bench import load_options as opt
from lorikeet_platform.cli.commands.options import DEFAULT_API_URL
from lorikeet_platform.cli.console import CommandFailed, ExitCode, print_table, say

if TYPE_CHECKING:
    from lorikeet_engine.experiments.record import Machine
    from lorikeet_platform.tools.bench.load.description import Load
    from lorikeet_platform.tools.bench.load.run import Run
    from lorikeet_platform.tools.bench.load.target import Target
    from lorikeet_platform.tools.bench.options import Judging
    from lorikeet_platform.tools.bench.summary import Summary

API_KEY = "LORIKEET_API_KEY"
PROMPTS = {"ids": "token ids", "words": "words"}
LONGEST = 200
NONE = "–"  # nobody had it
NAMED = 12  # lines of the tables by tenant and by message; the record has all


def serve(
    url: opt.Url = DEFAULT_API_URL,
    endpoint: opt.Endpoint = "/v1/completions",
    model: opt.Model = "",
    api_key_env: opt.ApiKeyEnv = API_KEY,
    workload: opt.Workload = None,
    random_input_len: opt.InputLen = None,
    random_output_len: opt.OutputLen = None,
    random_range_ratio: opt.RangeRatio = None,
    random_prefix_len: opt.PrefixLen = None,
    lora_modules: opt.LoraModules = None,
    zipf: opt.ZipfExponent = None,
    prompts: opt.PromptsAs = None,
    vocab_size: opt.VocabSize = None,
    ignore_eos: opt.IgnoreEos = False,
    request_rate: opt.RequestRate = None,
    burstiness: opt.Burstiness = None,
    concurrency: opt.Concurrency = None,
    trace: opt.Trace = None,
    num_prompts: opt.NumPrompts = None,
    duration: opt.Duration = None,
    num_warmups: opt.NumWarmups = 1,
    seed: opt.Seed = None,
    percentile_metrics: opt.PercentileMetrics = "ttft,tpot,itl,e2el",
    metric_percentiles: opt.MetricPercentiles = "50,90,99",
    goodput: opt.Goals = None,
    more_goals: opt.MoreGoals = None,
    metrics_url: opt.MetricsUrl = "",
    admin_url: opt.EngineUrl = "",
    out: opt.Out = None,
) -> None:
    """Load an OpenAI-compatible server; report latency, throughput and goodput.

    Latency counts from when a request was due. Tokens are those that the server counts.
    """
    from lorikeet_platform.tools.bench.options import LoadOptions, TargetOptions, judging_of, load_of, target_of

    with failures_told():
        judging = judging_of(percentile_metrics, metric_percentiles, goodput or (), more_goals or ())
        load = load_of(
            LoadOptions(
                *(workload, trace, request_rate, burstiness, concurrency, num_prompts, duration),
                *(random_input_len, random_output_len, random_range_ratio, random_prefix_len),
                *(tuple(lora_modules or ()), zipf, seed),
            )
        )
        asked = TargetOptions(url, endpoint, model, prompts, vocab_size, ignore_eos, metrics_url, num_warmups)
        target = target_of(asked, os.environ.get(api_key_env, "").strip())
        machine = _machine(target, admin_url)
        run = _run(target, load)
        _tell(run, target, judging)
    if out is not None:
        _write(run, target, load, machine, judging, out)
    if not any(request.outcome == "ok" for request in run.point.requests):
        raise CommandFailed(ExitCode.FAILED, "no request was served")


@contextmanager
def failures_told() -> Iterator[None]:
    """What a load test cannot do, as a command says it."""
    from lorikeet_engine.simulation.workload.strict_records import DescriptionError
    from lorikeet_platform.tools.bench.load.target import TargetUnfit
    from lorikeet_platform.tools.bench.watching.sampler import MetricsUnreadable

    try:
        yield
    except DescriptionError as error:
        raise CommandFailed(ExitCode.USAGE, str(error)) from None
    except TargetUnfit as error:
        raise CommandFailed(ExitCode.AUTH if error.is_key else ExitCode.NETWORK, str(error)) from None
    except MetricsUnreadable as error:
        raise CommandFailed(ExitCode.NETWORK, str(error)) from None
    except KeyboardInterrupt:
        raise CommandFailed(ExitCode.INTERRUPTED, "interrupted; nothing was written") from None


def _machine(target: Target, admin_url: str) -> Machine:
    from lorikeet_engine.experiments.record import Machine
    from lorikeet_platform.cli.api import admin_api
    from lorikeet_platform.tools.bench.engine_design import machine_of

    if not admin_url:
        return Machine(model=target.model, device="")
    with admin_api(admin_url) as api:
        return machine_of(target.model, api.get("/admin/v1/engine"))


def _run(target: Target, load: Load) -> Run:
    from lorikeet_platform.cli.commands.bench.progress import LoadProgress
    from lorikeet_platform.tools.bench.load.run import run_load

    say(f"{target.shown_url}{target.endpoint}: {target.model}, prompts of {PROMPTS[target.prompts]}")
    with LoadProgress(load.name, load.n_requests) as progress:
        return run_load(target, load, told=progress.at)


def _write(run: Run, target: Target, load: Load, machine: Machine, judging: Judging, folder: Path) -> None:
    from datetime import UTC, datetime

    from lorikeet_engine.experiments.record import RunRecord, write_record
    from lorikeet_platform.tools.bench.report import draw

    goals = " ".join(f"{metric}:{1000 * goal:g}" for metric, goal in judging.goals.items())
    point = replace(run.point, setup=run.point.setup | ({"goodput": goals} if goals else {}))
    record = RunRecord(
        name=load.name,
        axis="",
        source="server",
        target=f"{target.shown_url}{target.endpoint}",
        started_at=datetime.fromtimestamp(time.time() - run.point.seconds, UTC).isoformat(timespec="seconds"),
        machine=machine,
        points=[point],
    )
    folder.mkdir(parents=True, exist_ok=True)
    write_record(record, folder / "run.json")
    written = draw(record, folder)
    say(f"Written to {folder}: run.json, {', '.join(path.name for path in written)}.")


def _tell(run: Run, target: Target, judging: Judging) -> None:
    from lorikeet_platform.tools.bench.remarks import remarks
    from lorikeet_platform.tools.bench.summary import summarise

    summary = summarise(run.point, metrics=judging.metrics, shares=judging.shares, goals=judging.goals)
    print_table((target.model.upper(), ""), _rows(summary), empty="")
    columns = ("mean", *(f"p{100 * share:g}" for share in judging.shares))
    rows = [
        (
            latency.metric,
            *(f"{1000 * s:.2f}" if latency.count else NONE for s in (latency.mean, *latency.percentiles.values())),
        )
        for latency in summary.latencies
    ]
    print_table(("MILLISECONDS", *(column.upper() for column in columns)), rows, empty="")
    if len(summary.tenants) > 1:
        tenants = [
            (
                own.tenant,
                own.sent,
                own.served,
                own.output_tokens,
                *(NONE if s is None else f"{1000 * s:.1f}" for s in (own.ttft_p50, own.ttft_p99)),
            )
            for own in sorted(summary.tenants, key=lambda own: -own.sent)[:NAMED]
        ]
        print_table(("TENANT", "SENT", "SERVED", "OUTPUT TOKENS", "TTFT P50", "TTFT P99"), tenants, empty="")
    for remark in (*failures_of(run), *remarks(run.point), *missed_of(run)):
        say(remark)


def failures_of(run: Run) -> list[str]:
    """What the server said in place of serving."""
    return [f"{n} times: {message[:LONGEST]}" for message, n in run.failures.most_common(NAMED)]


def missed_of(run: Run) -> list[str]:
    return [f"{run.n_missed} readings of {run.make}'s counters failed and are left out."] if run.n_missed else []


def _rows(summary: Summary) -> list[tuple[str, object]]:
    outcomes = ", ".join(f"{n} {outcome}" for outcome, n in summary.outcomes.items() if n)
    cached = "" if summary.cached_tokens is None else f", {summary.cached_tokens} of them cached"
    rows: list[tuple[str, object]] = [
        ("time", f"{summary.seconds:.2f} s"),
        ("requests", outcomes or "none"),
        ("request throughput", f"{summary.requests_per_s:.2f}/s"),
        ("prompt tokens", f"{summary.prompt_tokens}{cached}"),
        ("output tokens", summary.output_tokens),
        ("output throughput", f"{summary.output_tokens_per_s:.1f} tokens/s"),
        ("total throughput", f"{summary.total_tokens_per_s:.1f} tokens/s"),
    ]
    if summary.adapters:
        rows.append(("adapters asked", f"{len(summary.adapters)}, {sum(summary.adapters.values())} requests"))
    if summary.goodput:
        good = summary.goodput
        rows.append(("goodput", f"{good.requests_per_s:.2f}/s, {good.met} of {good.met + good.missed} requests"))
    return rows
