"""The structured log: JSON lines for machines, readable lines in a terminal.

What may never be logged is not left to good will: fields that could hold prompts, answers or secrets are dropped by
name, whoever passes them.
"""

from __future__ import annotations

import logging
import sys
from typing import Final, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

FORBIDDEN: Final = frozenset(
    {"authorization", "body", "content", "cookie", "key", "messages", "output", "prompt", "secret", "text", "token"}
)


def configure_logging(*, stream: TextIO | None = None, level: int = logging.INFO) -> None:
    """Log to `stream` (standard error): coloured lines if it is a terminal, else one JSON object a line.

    Libraries that log through the standard library come out in the same form, from warnings upwards.
    """
    stream = sys.stderr if stream is None else stream
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        drop_forbidden,
    ]
    if stream.isatty():
        # structlog's default here prints local variables, which hold prompts.
        ending: list[Processor] = [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
    else:
        ending = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    structlog.configure(
        processors=[*shared, *ending],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(stream),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *ending],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(level, logging.WARNING))


def drop_forbidden(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    for name in FORBIDDEN & event.keys():
        event[name] = "(not logged)"
    return event
