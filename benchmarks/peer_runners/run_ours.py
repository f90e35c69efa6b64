"""Lorikeet: the engine process as `lorikeet engine` starts it, asked over its socket as a gateway asks it.

Tokens are taken as they cross the socket; no peer is asked for text either, where it can leave it out.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import zmq
from channel import Answer, Ask, Clock, serve

from lorikeet_engine.protocol import (
    PROTOCOL_VERSION,
    Failed,
    Hello,
    Step,
    Submit,
    Welcome,
    decode_engine,
    encode,
)

START_TIMEOUT_S = 300.0
HELLO_EVERY_S = 1.0
BASE_TENANT = "base"
MIB = 1 << 20


class Lorikeet:
    """An engine process and a connection to it."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.version = _commit()
        self._folder = tempfile.TemporaryDirectory()
        endpoint = f"ipc://{self._folder.name}/engine.sock"
        config = Path(self._folder.name, "engine.json")
        config.write_text(json.dumps(_config(settings, endpoint)))
        self._process = subprocess.Popen([sys.executable, "-m", "lorikeet_engine", "--config", str(config)])
        self._digests: dict[str, str] = settings["digests"]
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.connect(endpoint)
        self._last_hello = 0.0
        self._n_batches = 0
        dtype = self._wait_ready()
        if dtype != settings["dtype"]:
            raise RuntimeError(f"the engine computes in {dtype}")

    def _wait_ready(self) -> str:
        """The dtype it computes in."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and self._process.poll() is None:
            message = self._receive(100)
            if isinstance(message, Welcome):
                return message.info.dtype
        raise RuntimeError("the engine did not start; its log says why")

    def run(self, asks: list[Ask]) -> list[Answer]:
        clock = Clock()
        self._n_batches += 1
        answers: dict[str, Answer] = {}
        for index, ask in enumerate(asks):
            name = f"{self._n_batches}-{index}"
            answers[name] = Answer()
            self._socket.send(encode(self._submit(name, ask)))
        n_open = len(asks)
        while n_open:
            message = self._receive(1000)
            match message:
                case Step():
                    now = clock()
                    for token in message.tokens:
                        answers[token.request_id].add([token.token], now)
                        n_open -= bool(token.finish_reason)
                case Failed():
                    raise RuntimeError(f"{message.code}: {message.message}")
            if self._process.poll() is not None:
                raise RuntimeError("the engine ended; its log says why")
        return list(answers.values())

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._folder.cleanup()

    def _submit(self, name: str, ask: Ask) -> Submit:
        """Every adapter has a tenant of its own; who asks the base model shares one, and so its prefixes."""
        tenant = ask.adapter or BASE_TENANT
        return Submit(
            request_id=name,
            tenant=tenant,
            weight=1.0,
            cache_salt=tenant.encode(),
            n=1,
            prompt=ask.prompt,
            max_tokens=ask.max_tokens,
            temperature=0.0,
            top_p=1.0,
            top_k=0,
            seed=0,
            adapter=self._digests[ask.adapter] if ask.adapter else "",
            caps=[],
        )

    def _receive(self, wait_ms: int) -> Any:
        """The next message, or None; says hello when it is time, for an engine drops who is silent."""
        if time.monotonic() - self._last_hello > HELLO_EVERY_S:
            self._last_hello = time.monotonic()
            self._socket.send(encode(Hello(PROTOCOL_VERSION)))
        return decode_engine(self._socket.recv()) if self._socket.poll(wait_ms) else None


def _commit() -> str:
    """The commit that runs, with a mark when files were changed since."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude=*"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return described.stdout.strip() or "unknown"


def _config(settings: dict[str, Any], endpoint: str) -> dict[str, Any]:
    return {
        "model_dir": settings["model_dir"],
        "model_name": "smollm2",
        "store_url": settings["store_dir"],
        "endpoint": endpoint,
        "health_port": 0,
        "dtype": settings["dtype"],
        "threads": settings["threads"],
        "max_num_seqs": 16,
        "max_model_len": 1024,
        "kv_cache_bytes": 1024 * MIB,
        "adapter_pool_bytes": 512 * MIB,
        "ttft_deadline": 0.0,
    }


if __name__ == "__main__":
    serve(Lorikeet)
