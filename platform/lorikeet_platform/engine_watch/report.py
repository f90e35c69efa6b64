"""The engine's page from what the watch knows. Pure functions."""

from __future__ import annotations

from lorikeet_engine.client import EngineInfo
from lorikeet_engine.cost import suggested_max_num_seqs, theoretical_concurrency
from lorikeet_engine.stats import EngineDesign
from lorikeet_platform.engine_watch.performance import performance
from lorikeet_platform.engine_watch.schemas import Design, EngineReport, EngineState, Knob, MemoryRow
from lorikeet_platform.engine_watch.window import Window
from lorikeet_platform.settings import PREFIX, EngineSettings

KnobValue = bool | int | float | str


def engine_report(
    info: EngineInfo | None,
    window: Window | None,
    design: EngineDesign | None,
    *,
    has_answered: bool,
    name: str,
    settings: EngineSettings,
) -> EngineReport:
    """`info`: None while no engine answers; `name`: what the model is called then; `settings`: this gateway's own."""
    if info is None:
        state: EngineState = "unavailable" if has_answered else "starting"
        return EngineReport(state=state, model=name, device=None, dtype=None, design=None, performance=None)
    return EngineReport(
        state="ready",
        model=info.model_name,
        device=info.device,
        dtype=info.dtype,
        design=None if design is None else shown_design(design, settings),
        performance=None if window is None or design is None else performance(window, design),
    )


def shown_design(design: EngineDesign, settings: EngineSettings) -> Design:
    concurrency = theoretical_concurrency(design.n_blocks, design.block_size, design.max_model_len)
    return Design(
        knobs=[
            Knob(name=name, setting=setting_name(name), value=value, is_automatic=_is_automatic(name, value, settings))
            for name, value in design.knobs.items()
        ],
        memory=[MemoryRow(name=name, bytes=n_bytes) for name, n_bytes in design.memory],
        available_bytes=design.available_bytes,
        n_blocks=design.n_blocks,
        block_size=design.block_size,
        block_bytes=design.block_bytes,
        max_model_len=design.max_model_len,
        max_num_seqs=design.max_num_seqs,
        theoretical_concurrency=concurrency,
        suggested_max_num_seqs=suggested_max_num_seqs(concurrency),
    )


def setting_name(knob: str) -> str:
    """The environment variable of one of the engine's knobs; the highest rank is the whole installation's."""
    return f"{PREFIX}{knob.upper()}" if knob == "max_rank" else f"{PREFIX}ENGINE__{knob.upper()}"


def _is_automatic(name: str, value: KnobValue, settings: EngineSettings) -> bool | None:
    """By this gateway's own settings, which are the engine's where all parts have the same."""
    given = getattr(settings, name, None)
    if given == value:
        return False
    return True if given in (0, "auto") and not isinstance(given, bool) else None
