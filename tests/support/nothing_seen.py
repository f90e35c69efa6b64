"""What an engine answers to questions about its steps, prompts and design when it has none of its own."""

from __future__ import annotations

import time

from lorikeet_engine.protocol import AskDesign, AskPrompts, AskSteps, Design, Prompts, Steps
from tests.support.engine_figures import engine_design


def nothing_seen(question: AskSteps | AskPrompts | AskDesign) -> Steps | Prompts | Design:
    match question:
        case AskSteps(ticket, _):
            return Steps(ticket, time.monotonic(), [])
        case AskPrompts(ticket):
            return Prompts(ticket, [])
        case AskDesign(ticket):
            return Design(ticket, engine_design())
