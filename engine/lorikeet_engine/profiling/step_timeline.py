"""Records the timeline of the first steps after the warm-up and writes it to a file, once.

Owns the clock. Knows phases and ops by the names it is told; the file's format is `chrome_trace`'s.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from itertools import groupby
from pathlib import Path
from types import TracebackType

from lorikeet_engine.profiling.chrome_trace import Span, chrome_trace
from lorikeet_engine.profiling.timeline import NOTHING
from lorikeet_engine.scheduling.plan import StepPlan

# The first steps start threads, size buffers and touch memory for the first time.
WARM_UP_STEPS = 8
MAX_STEPS = 1000  # a file of 50 MB, and ten times that in memory while it is written
HOST, DEVICE = 0, 1  # tracks
TRACKS = ("engine loop", "device")

log = logging.getLogger(__name__)


class StepTimeline:
    """A `Timeline` of `n_steps` steps, at most `MAX_STEPS`; turns that computed nothing are not kept.

    Attributes:
        about: what the file says about the engine; may be filled until it is written.
        before_keeping: called at the end of a turn that will be kept, to add what is known only then.
    """

    def __init__(
        self,
        path: Path,
        *,
        n_steps: int,
        n_warm_up: int = WARM_UP_STEPS,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self.clock = clock
        self.about: dict[str, str] = {}
        self.before_keeping: Callable[[], None] = lambda: None
        self._path = path
        self._n_steps = n_steps
        self._n_to_skip = n_warm_up
        self._n_kept = 0
        self._kept: list[Span] = []
        self._turn: list[Span] = []
        self._step: tuple[str, Mapping[str, int | str]] | None = None
        self._is_written = False

    @property
    def is_recording(self) -> bool:
        return not self._n_to_skip and not self._is_written

    @contextmanager
    def turn(self) -> Iterator[None]:
        self._turn, self._step = [], None
        start_ns = self.clock()
        yield
        if self._step is None or self._is_written:
            return
        if self._n_to_skip:
            self._n_to_skip -= 1
            return
        end_ns = self.clock()
        self.before_keeping()
        name, args = self._step
        # Who ends last was added last; the file wants who holds others first.
        self._kept += [Span(name, start_ns, end_ns, HOST, "step", args), *_layers(self._turn), *reversed(self._turn)]
        self._n_kept += 1
        if self._n_kept == self._n_steps:
            self.close()

    def computes(self, plan: StepPlan, kind: str) -> None:
        if self.is_recording or self._n_to_skip:
            self._step = (
                f"{kind} step",
                {
                    "step": plan.step_id,
                    "kind": kind,
                    "rows": len(plan.rows),
                    "tokens": plan.n_tokens,
                    "adapters": len({row.adapter for row in plan.rows} - {None}),
                },
            )

    def phase(self, name: str) -> AbstractContextManager[None]:
        return _Timed(self, name, "phase", {}) if self.is_recording else NOTHING

    def op(self, name: str, layer: int | None) -> AbstractContextManager[None]:
        """One operation that the host computes itself."""
        return _Timed(self, name, "op", _layer_args(layer)) if self.is_recording else NOTHING

    def add_device_op(self, name: str, layer: int | None, start_ns: int, end_ns: int) -> None:
        """One operation that a device computed, at times of this clock."""
        self._turn.append(Span(name, start_ns, end_ns, DEVICE, "op", _layer_args(layer)))

    def add(self, span: Span) -> None:
        self._turn.append(span)

    def close(self) -> None:
        """Write what there is, unless that was done, and say where."""
        if self._is_written:
            return
        self._is_written = True
        n_tracks = 1 + max((span.track for span in self._kept), default=HOST)
        trace = chrome_trace(self._kept, process="lorikeet engine", tracks=TRACKS[:n_tracks], about=self.about)
        self._kept = []
        try:
            self._path.write_text(json.dumps(trace), encoding="utf-8")
        except OSError as error:
            log.error("the timeline could not be written: %s", error)
        else:
            log.info("timeline of %d steps: %s (opens in ui.perfetto.dev)", self._n_kept, self._path)


class _Timed:
    """A span that begins and ends with a `with` block."""

    __slots__ = ("_args", "_category", "_name", "_start_ns", "_timeline")

    def __init__(self, timeline: StepTimeline, name: str, category: str, args: Mapping[str, int | str]) -> None:
        self._timeline = timeline
        self._name = name
        self._category = category
        self._args = args

    def __enter__(self) -> None:
        self._start_ns = self._timeline.clock()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        timeline = self._timeline
        timeline.add(Span(self._name, self._start_ns, timeline.clock(), HOST, self._category, self._args))


def _layer_args(layer: int | None) -> Mapping[str, int | str]:
    return {} if layer is None else {"layer": layer}


def _layers(spans: list[Span]) -> Iterator[Span]:
    """A span around the ops of each layer, so that a viewer shows layers before it shows ops."""
    ops = sorted((span for span in spans if span.category == "op"), key=lambda span: (span.track, span.start_ns))
    for (track, layer), group in groupby(ops, key=lambda span: (span.track, span.args.get("layer"))):
        if layer is not None:
            inside = list(group)
            yield Span(f"layer {layer}", inside[0].start_ns, inside[-1].end_ns, track, "layer")
