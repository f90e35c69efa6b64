"""A generation in its request's trace: the engine's phases by the milestones that its client noted, and the figures."""

from __future__ import annotations

from typing import Final

from lorikeet_engine.generation import Milestones
from lorikeet_platform.inference.running.answer import RunningAnswer
from lorikeet_platform.telemetry.tracing.spans import RequestTrace, current_trace

NS: Final = 1_000_000_000


def note_answer(answer: RunningAnswer, *, operation: str, model: str, outcome: str) -> None:
    """By the conventions for generative models (`gen_ai`), without content.

    Args:
        model: the name that was asked for.
        outcome: how its usage record ends.
    """
    trace, usage, resolved = current_trace(), answer.usage, answer.resolved
    trace.note(
        gen_ai__operation__name=operation,
        gen_ai__request__model=model,
        gen_ai__usage__input_tokens=usage.prompt_tokens,
        gen_ai__usage__output_tokens=usage.completion_tokens,
        lorikeet__cached_tokens=usage.cached_tokens,
        lorikeet__outcome=outcome,
    )
    if resolved.version_id is not None:
        trace.note(lorikeet__version_id=resolved.version_id)
    if answer.milestones is not None:
        _add_phases(trace, answer.milestones)


def _add_phases(trace: RequestTrace, milestones: Milestones) -> None:
    """The queue begins when the engine was asked: its clock is not ours, only its lengths are."""
    if not milestones.is_admitted:
        return
    admitted_ns = milestones.asked_ns + int(milestones.queue_s * NS)
    loading_ns = admitted_ns - int(milestones.adapter_wait_s * NS)
    trace.add("queue", milestones.asked_ns, loading_ns)
    if milestones.adapter_wait_s:
        trace.add("adapter.load", loading_ns, admitted_ns)
    if milestones.first_token_ns:
        trace.add("engine.prefill", admitted_ns, milestones.first_token_ns)
        trace.add("engine.decode", milestones.first_token_ns, milestones.last_token_ns)
