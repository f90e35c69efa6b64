"""OpenVINO GenAI's continuous batching, its own loop stepped here so that every token has its time.

The pipeline takes an adapter for each request but applies one to the whole batch, and only `generate` applies it: a
request that was added for the loop answers with whatever was applied last. So requests are grouped by adapter and the
groups run one after another, each behind a `generate` of one token, which is what a caller would have to do; all of
them count as arrived at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import openvino
import openvino_genai as genai
from channel import Answer, Ask, Clock, serve

SCALE = 2.0  # alpha over rank of every adapter; the file of weights does not say it
CACHE_GIB = 1


class ContinuousBatching:
    """Two pipelines, for requests without an adapter and with one."""

    version = str(genai.__version__).split("-")[0]

    def __init__(self, settings: dict[str, Any]) -> None:
        folders = sorted(Path(settings["adapters_dir"]).iterdir())
        self._adapters = {f.name: genai.Adapter(str(f / "adapter_model.safetensors")) for f in folders}
        self._plain = _pipeline(settings, {})
        registered = genai.AdapterConfig([(adapter, 0.0) for adapter in self._adapters.values()])
        self._adapted = _pipeline(settings, {"adapters": registered})
        self._applied = ""
        self._n_requests = 0

    def run(self, asks: list[Ask]) -> list[Answer]:
        clock = Clock()
        answers = [Answer() for _ in asks]
        for adapter in dict.fromkeys(ask.adapter for ask in asks):
            group = [pair for pair in zip(asks, answers, strict=True) if pair[0].adapter == adapter]
            self._run_group(group, adapter, clock)
        return answers

    def close(self) -> None:
        return

    def _run_group(self, group: list[tuple[Ask, Answer]], adapter: str, clock: Clock) -> None:
        pipeline = self._adapted if adapter else self._plain
        if adapter and adapter != self._applied:
            pipeline.generate([_tensor([0])], [self._config(Ask([0], 1, adapter))])
            self._applied = adapter
        reading = [(self._add(pipeline, ask), answer) for ask, answer in group]
        while pipeline.has_non_finished_requests():
            pipeline.step()
            now = clock()
            for handle, answer in reading:
                if handle.can_read():
                    for output in handle.read().values():
                        answer.add(output.generated_ids, now)

    def _add(self, pipeline: Any, ask: Ask) -> Any:
        self._n_requests += 1
        return pipeline.add_request(self._n_requests, _tensor(ask.prompt), self._config(ask))

    def _config(self, ask: Ask) -> Any:
        config = genai.GenerationConfig(max_new_tokens=ask.max_tokens, ignore_eos=True, do_sample=False)
        if ask.adapter:
            config.adapters = genai.AdapterConfig(self._adapters[ask.adapter], SCALE)
        return config


def _tensor(tokens: list[int]) -> Any:
    return openvino.Tensor(np.array([tokens], dtype=np.int64))


def _pipeline(settings: dict[str, Any], properties: dict[str, Any]) -> Any:
    scheduler = genai.SchedulerConfig()
    scheduler.cache_size = CACHE_GIB
    scheduler.max_num_seqs = 16
    scheduler.enable_prefix_caching = True
    return genai.ContinuousBatchingPipeline(
        settings["ir_dir"], scheduler, "CPU", {"INFERENCE_NUM_THREADS": settings["threads"], **properties}
    )


if __name__ == "__main__":
    serve(ContinuousBatching)
