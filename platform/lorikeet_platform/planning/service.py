"""Answers a question for a plan: finds what it is about, the running engine or a shipped model and device."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from lorikeet_engine.client import EngineClient
from lorikeet_engine.cost import DEVICES
from lorikeet_engine.errors import EngineUnavailable
from lorikeet_engine.simulation.shipped import MODELS
from lorikeet_engine.stats import EngineDesign, StepSample
from lorikeet_platform.engine_watch.watch import EngineWatch
from lorikeet_platform.engine_watch.window import Window
from lorikeet_platform.errors import PlatformError, quoted
from lorikeet_platform.planning.desk import in_turn
from lorikeet_platform.planning.learning.calibration import calibrate
from lorikeet_platform.planning.learning.comparing import calibration_shown
from lorikeet_platform.planning.planner import load_of, make_plan
from lorikeet_platform.planning.prediction import Load
from lorikeet_platform.planning.schemas import CapacityPlan, PlanQuestion
from lorikeet_platform.planning.subject import Subject, new_subject, running_subject, shipped_device, shipped_model


@dataclass(frozen=True, slots=True)
class Running:
    """The engine that answers: its model's name, and its design."""

    model: str
    design: EngineDesign


NO_ENGINE = "No engine answers. Name a model and a device to plan without one."


async def plan_for(question: PlanQuestion, client: EngineClient, watch: EngineWatch) -> CapacityPlan:
    """Raises PlatformError: invalid_value naming the field, engine_unavailable where the question needs an engine,
    overloaded where many are asked at once."""
    load = load_of(question)
    running: Running | None = None
    steps: list[StepSample] = []
    if question.model is None or question.device is None or question.live:
        try:
            running = Running(client.info.model_name, await client.design())
            if question.live:
                steps = (await client.steps()).samples
        except EngineUnavailable:
            raise PlatformError("engine_unavailable", NO_ENGINE) from None
    return await in_turn(partial(_plan, question, load, running, steps, watch.window()))


def _plan(
    question: PlanQuestion, load: Load, running: Running | None, steps: list[StepSample], window: Window | None
) -> CapacityPlan:
    subject = subject_of(question, load, running)
    if not question.live or running is None:
        return make_plan(load, subject)
    calibrated = calibrate(steps)
    as_it_runs = running_subject(running.model, running.design, {}, running.design.max_model_len)
    return make_plan(load, subject, calibrated, calibration_shown(as_it_runs, calibrated, window))


def subject_of(question: PlanQuestion, load: Load, running: Running | None) -> Subject:
    """What the question leaves out is the running engine's; a live question is about that engine alone."""
    knobs = question.knobs.model_dump(exclude_none=True)
    if running is None:
        spec, profile = (
            shipped_model(_shipped("model", question.model)),
            shipped_device(_shipped("device", question.device)),
        )
        return new_subject(question.model or "", spec, profile, knobs, load.context)
    design, name = running.design, running.model
    is_same_model, is_same_device = question.model in (None, name), question.device in (None, design.device.name)
    if question.live and question.knobs.block_size not in (None, design.block_size):
        message = (
            f"block_size: the engine's steps were made with blocks of {design.block_size}, and say nothing of others. "
            f"Ask without live."
        )
        raise PlatformError("invalid_value", message, "knobs.block_size")
    if is_same_model and is_same_device:
        return running_subject(name, design, knobs, load.context)
    if question.live:
        message = f"A live plan is of the engine that runs: model {name}, device {design.device.name}."
        raise PlatformError("invalid_value", message, "device" if is_same_model else "model")
    spec = design.model if is_same_model else shipped_model(_shipped("model", question.model))
    profile = design.device if is_same_device else shipped_device(_shipped("device", question.device))
    return new_subject(question.model or name, spec, profile, knobs, load.context)


def _shipped(param: str, name: str | None) -> str:
    """A name and nothing else: what lies where on this machine is nobody's business."""
    names = sorted(path.stem for path in {"model": MODELS, "device": DEVICES}[param].glob("*.json"))
    if name not in names:
        raise PlatformError(
            "invalid_value", f"{quoted(name or '')} is not shipped; there are {', '.join(names)}.", param
        )
    return name
