"""Ops of a device that computes beside the host, with scripted events: real ones need a device."""

from __future__ import annotations

import json
from pathlib import Path

from lorikeet_engine.execution.device_op_timer import DeviceOpTimer
from lorikeet_engine.profiling.step_timeline import StepTimeline
from lorikeet_engine.scheduling.plan import StepPlan
from tests.support.trace_events import assert_nested, complete_events, inside, named

LATENCY_NS = 5_000  # from a launch to its start


class ScriptedDevice:
    """A queue that is `LATENCY_NS` behind the host, and a host whose calls take 1 µs each."""

    def __init__(self) -> None:
        self.now_ns = 0

    def clock(self) -> int:
        self.now_ns += 1_000
        return self.now_ns

    def event(self) -> ScriptedEvent:
        return ScriptedEvent(self)


class ScriptedEvent:
    def __init__(self, device: ScriptedDevice) -> None:
        self._device = device
        self.at_ns: int | None = None
        self.is_over = False

    def record(self) -> None:
        self.at_ns = self._device.clock() + LATENCY_NS

    def synchronize(self) -> None:
        assert self.at_ns is not None
        self._device.now_ns = max(self._device.now_ns, self.at_ns)

    def elapsed_time(self, end_event: ScriptedEvent) -> float:
        assert self.at_ns is not None
        assert end_event.at_ns is not None
        assert end_event.at_ns <= self._device.now_ns, "an event was read before the device had reached it"
        return (end_event.at_ns - self.at_ns) / 1e6


def test_ops_stand_on_the_devices_track_at_the_hosts_times(tmp_path: Path) -> None:
    device, path = ScriptedDevice(), tmp_path / "timeline.json"
    timeline = StepTimeline(path, n_steps=2, n_warm_up=1, clock=device.clock)
    timer = DeviceOpTimer(timeline, device.event)
    for step in range(3):
        with timeline.turn():
            timeline.computes(StepPlan(step, ()), "decode")
            with timeline.phase("forward"):
                for name, layer in (("qkv", 0), ("attention", 0), ("qkv", 1)):
                    with timer.op(name, layer):
                        pass
    content = json.loads(path.read_text())
    assert [event["args"]["name"] for event in content["traceEvents"] if event["name"] == "thread_name"] == [
        "engine loop",
        "device",
    ]
    events = complete_events(content)
    assert_nested(events)
    host, on_device = ([event for event in events if event["tid"] == track] for track in (1, 2))
    assert [event["name"] for event in host] == ["decode step", "forward"] * 2
    assert [event["name"] for event in on_device] == ["layer 0", "qkv", "attention", "layer 1", "qkv"] * 2
    assert [event["name"] for event in inside(named(on_device, "layer 0"), on_device)] == ["qkv", "attention"]
    forward, first = named(host, "forward"), named(on_device, "qkv")
    assert forward["ts"] < first["ts"] < forward["ts"] + forward["dur"] + LATENCY_NS / 1000
    assert first["dur"] == 1.0
