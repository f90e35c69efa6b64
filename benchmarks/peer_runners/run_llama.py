"""llama.cpp: its own server, asked over HTTP with token ids, tokens streamed back as ids.

The server takes each request's adapter as a scale by number; requests with different adapters it runs one after
another, as it sees fit.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import subprocess
import threading
import time
from typing import Any

from channel import Answer, Ask, Clock, serve

START_TIMEOUT_S = 120.0
SLOTS = 16
SLOT_TOKENS = 1024
# Of the samplers only the choice of the best token, which is what temperature 0 means.
GREEDY = {"samplers": ["top_k"], "top_k": 1, "temperature": 0.0, "ignore_eos": True, "stream": True}


class LlamaServer:
    """A server process with a BF16 model and all adapters."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._adapters: list[str] = settings["adapters"]
        self._port = _free_port()
        self.version = _version(settings["server"])
        lora = ",".join(f"{settings['gguf_dir']}/{name}.gguf" for name in self._adapters)
        threads = str(settings["threads"])
        options = {
            "-m": f"{settings['gguf_dir']}/model.gguf",
            "--port": str(self._port),
            "-np": str(SLOTS),
            "-c": str(SLOTS * SLOT_TOKENS),
            "-t": threads,
            "-tb": threads,
            "-b": "2048",
            "-ub": "512",
            "--lora": lora,
        }
        words = [word for option in options.items() for word in option]
        self._process = subprocess.Popen([settings["server"], *words, "--lora-init-without-apply", "--no-webui"])
        self._wait_ready()

    def run(self, asks: list[Ask]) -> list[Answer]:
        clock = Clock()
        answers = [Answer() for _ in asks]
        failures: list[str] = []
        threads = [
            threading.Thread(target=self._stream, args=(ask, answer, clock, failures))
            for ask, answer in zip(asks, answers, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise RuntimeError(failures[0])
        return answers

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()

    def _stream(self, ask: Ask, answer: Answer, clock: Clock, failures: list[str]) -> None:
        scale = [{"id": i, "scale": float(name == ask.adapter)} for i, name in enumerate(self._adapters)]
        body = {"prompt": ask.prompt, "n_predict": ask.max_tokens, "return_tokens": True, "lora": scale, **GREEDY}
        connection = http.client.HTTPConnection("127.0.0.1", self._port)
        try:
            connection.request("POST", "/completion", json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != 200:
                raise OSError(response.read().decode(errors="replace"))
            for line in response:
                if line.startswith(b"data: "):
                    answer.add(json.loads(line[6:])["tokens"], clock())
        except OSError as error:
            failures.append(str(error))
        finally:
            connection.close()

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self._port)
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    return
            except OSError:
                pass
            time.sleep(0.1)
        raise RuntimeError("the server did not start; its log says why")


def _version(server: str) -> str:
    shown = subprocess.run([server, "--version"], capture_output=True, text=True, check=True)
    found = re.search(r"version: (\S+).*commit (\w+)", shown.stdout + shown.stderr)
    return " ".join(found.groups()) if found else "unknown"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    serve(LlamaServer)
