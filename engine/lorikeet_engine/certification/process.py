"""The certifier as its callers see it: a child process with the base model, started when there is something to measure.

The child needs torch, transformers and PEFT; this side none of them. It holds the model for the adapters that follow,
and ends by itself when none has come for a while.

    to the child      one JSON line an adapter: folder, image, digest, serving_dtype
    from the child    one JSON line each: measured | rejected | failed
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from lorikeet_adapters.errors import quoted
from lorikeet_adapters.sandbox.children import end_child, manner_of, parse_answer
from lorikeet_adapters.sandbox.rejection import rejection_of
from lorikeet_engine.certification.measured import Measured

PROGRAM: Final = ("-I", "-m", "lorikeet_engine.certification")
MEMORY_BYTES: Final = 8 << 30
TIMEOUT_S: Final = 900.0
MAX_ANSWER_BYTES: Final = 64 << 10
MAX_ANSWER_DEPTH: Final = 8
_READ_BYTES: Final = 1 << 16
# Nothing of the parent's: no credentials, nobody's proxy, no GPU that the engine has. Threads wait without a busy core.
_ENVIRONMENT: Final = {
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "TOKENIZERS_PARALLELISM": "false",
}


class CertifierBroken(Exception):
    """The child could not measure: a crash, a limit, an answer that is none; `reason` may quote an adapter."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Certifier:
    """Measures one adapter after another; safe for use by several threads, which wait for each other."""

    def __init__(
        self,
        *,
        model_dir: Path,
        base_model_name: str,
        max_rank: int,
        memory_bytes: int = MEMORY_BYTES,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """`memory_bytes`: of the child. Where the base model does not fit twice in float32, PEFT is left out."""
        self._arguments = (str(model_dir), base_model_name, str(max_rank), str(memory_bytes))
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._is_closed = False

    def measure(self, *, folder: Path, image: Path, digest: str, serving_dtype: str) -> Measured:
        """The adapter uploaded as the files of `folder`, whose normalised file is `image`.

        `serving_dtype` is the engine's number format: "bfloat16", "float16" or "float32".

        Raises:
            AdapterRejected: its weights leave float32 or the engine's format, PEFT does not load it, or it fits
                neither the base model nor the memory.
            CertifierBroken: nothing is known; the next adapter gets a new child.
        """
        request = {"folder": str(folder), "image": str(image), "digest": digest, "serving_dtype": serving_dtype}
        with self._lock:
            answer = self._ask(json.dumps(request).encode() + b"\n")
        if "measured" in answer:
            try:
                return Measured.from_record(answer["measured"])
            except (ValueError, AttributeError):
                raise CertifierBroken("its answer is none") from None
        rejected = rejection_of(answer.get("rejected"))
        if rejected is not None:
            raise rejected
        raise CertifierBroken(quoted(answer.get("failed", "an answer that is none")))

    def close(self) -> None:
        """End the child, whatever it is at, and start no other; who waits for it gets CertifierBroken."""
        self._is_closed = True
        child = self._child
        if child is not None and child.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
        with self._lock:
            self._end()

    def _ask(self, request: bytes) -> Mapping[str, Any]:
        """The answer of the child that waits, or of a new one where none does or it was just about to end."""
        deadline = time.monotonic() + self._timeout_s
        if self._child is not None and self._child.poll() is None:
            line, status = self._exchange(self._child, request, deadline)
            if line is not None:
                return parse_answer(line, max_depth=MAX_ANSWER_DEPTH)
            if status != 0:
                raise CertifierBroken(f"the child {manner_of(status)}")
        self._end()
        self._child = self._start()
        if self._is_closed:
            self._end()
            raise CertifierBroken("it was closed")
        line, status = self._exchange(self._child, request, deadline)
        if line is None:
            raise CertifierBroken(f"the child {manner_of(status)}")
        return parse_answer(line, max_depth=MAX_ANSWER_DEPTH)

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, *PROGRAM, *self._arguments],
            env=_ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,
        )

    def _exchange(self, child: subprocess.Popen[bytes], request: bytes, deadline: float) -> tuple[bytes | None, int]:
        """One line of answer; or None and the status with which the child ended before it said anything."""
        assert child.stdin is not None
        line = None
        try:
            child.stdin.write(request)
            line = _read_line(child, deadline)
        except BrokenPipeError:
            pass
        except CertifierBroken:
            self._end()
            raise
        if line is not None:
            return line, 0
        status = child.wait()
        self._end()
        return None, status

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            end_child(child)


def _read_line(child: subprocess.Popen[bytes], deadline: float) -> bytes | None:
    assert child.stdout is not None
    data = b""
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while not data.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not selector.select(left):
                raise CertifierBroken("the child took too long")
            piece = os.read(child.stdout.fileno(), _READ_BYTES)
            if not piece:
                return None
            data += piece
            if len(data) > MAX_ANSWER_BYTES:
                raise CertifierBroken(f"the child answered with more than {MAX_ANSWER_BYTES} bytes")
    return data
