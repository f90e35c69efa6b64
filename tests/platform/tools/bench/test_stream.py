"""Answers' event streams, however their bytes are cut."""

from __future__ import annotations

import pytest

from lorikeet_platform.tools.bench.load.stream import ErrorObject, Event, EventReader, StreamBroken, read_error

STREAM = (
    b": a comment\n\nevent: message\n"
    b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{"content":"h\xc3\xa9"},"finish_reason":null,"logprobs":null}]}\r\n\r\n'
    b'data:{"choices":[{"index":0,"delta":{"reasoning_content":"so"}}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,'
    b'"prompt_tokens_details":{"cached_tokens":1}}}\n\n'
    b"data: [DONE]\n\n"
)


@pytest.mark.parametrize("size", [1, 2, 7, 64, 10_000])
def test_events_are_whole_however_the_bytes_are_cut(size: int) -> None:
    reader = EventReader()
    events: list[Event] = []
    for i in range(0, len(STREAM), size):
        events += reader.feed(STREAM[i : i + size])
    assert [event.has_text for event in events] == [False, True, True, False, False]
    assert [event.is_last for event in events] == [False, False, False, True, False]
    usage = events[-1].usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (3, 2)
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens == 1
    assert reader.is_done


@pytest.mark.parametrize(
    ("payload", "has_text"),
    [
        (b'{"choices":null,"usage":{"prompt_tokens":null,"completion_tokens":null}}', False),
        (b'{"usage":{"prompt_tokens":5.0,"completion_tokens":2.0}}', False),
        (b'{"choices":[{"text":null,"delta":null,"finish_reason":null}],"usage":null}', False),
        (b'{"choices":[{"delta":{"content":null,"tool_calls":null}}]}', False),
        (b'{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"{"}}]}}]}', True),
        (b'{"choices":[{"delta":{"content":[{"type":"text","text":"a"}]}}]}', True),
    ],
)
def test_what_servers_leave_empty_is_nothing_and_a_tools_arguments_are_text(payload: bytes, has_text: bool) -> None:
    (event,) = EventReader().feed(b"data: " + payload + b"\n\n")
    assert (event.has_text, event.is_last) == (has_text, False)


@pytest.mark.parametrize("line", [b"data: {not json\n", b'data: {"choices": 3}\n', b"data: \xff\n"])
def test_what_is_no_event_is_not_guessed(line: bytes) -> None:
    with pytest.raises(StreamBroken):
        list(EventReader().feed(line))


def test_errors_are_read_in_every_dialect() -> None:
    events = list(EventReader().feed(b'error: {"code":500,"message":"gone","type":"server_error"}\n'))
    assert events[0].error == ErrorObject("gone", 500, "server_error")
    assert read_error(b'{"error":{"message":"no","code":"rate_limit_exceeded"}}').code == "rate_limit_exceeded"
    assert read_error(b'{"object":"error","message":"no","type":"BadRequestError","code":400}').code == 400
    assert read_error(b'{"error":"no"}').message == "no"
    assert read_error(b'{"error":{"message":null,"code":"busy"}}').code == "busy"
    assert read_error(b'{"detail":"prompt must be a string."}').message == '"prompt must be a string."'
    assert read_error(b"<html>") == ErrorObject()
