"""vLLM for CPUs, in process: its engine's own loop, stepped here so that every token has its time.

`adapters_dir` switches LoRA on. That slows base requests down, so those are measured with it off.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import vllm
from channel import Answer, Ask, Clock, serve
from vllm.lora.request import LoRARequest

GREEDY = {"temperature": 0.0, "ignore_eos": True, "detokenize": False}
N_ADAPTERS = 8  # at once, in the scenarios


class Vllm:
    """An engine with room for every scenario."""

    version = vllm.__version__

    def __init__(self, settings: dict[str, Any]) -> None:
        folders = sorted(Path(settings["adapters_dir"]).iterdir()) if settings["adapters_dir"] else []
        self._adapters = {f.name: LoRARequest(f.name, i + 1, str(f)) for i, f in enumerate(folders)}
        lora = {"enable_lora": True, "max_loras": N_ADAPTERS, "max_cpu_loras": len(folders), "max_lora_rank": 64}
        self._engine = vllm.LLM(
            model=settings["model_dir"],
            dtype=settings["dtype"],
            max_model_len=1024,
            max_num_seqs=16,
            enable_prefix_caching=True,
            **(lora if folders else {}),
        ).llm_engine
        self._n_batches = 0

    def run(self, asks: list[Ask]) -> list[Answer]:
        clock = Clock()
        self._n_batches += 1
        answers: dict[str, Answer] = {}
        for index, ask in enumerate(asks):
            name = f"{self._n_batches}-{index}"
            answers[name] = Answer()
            self._engine.add_request(
                name,
                {"prompt_token_ids": ask.prompt},
                vllm.SamplingParams(max_tokens=ask.max_tokens, **GREEDY),
                lora_request=self._adapters[ask.adapter] if ask.adapter else None,
            )
        while self._engine.has_unfinished_requests():
            outputs = self._engine.step()
            now = clock()
            for output in outputs:
                answer = answers[output.request_id]
                answer.add(output.outputs[0].token_ids[len(answer.tokens) :], now)
        return list(answers.values())

    def close(self) -> None:
        del self._engine


if __name__ == "__main__":
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    serve(Vllm)
