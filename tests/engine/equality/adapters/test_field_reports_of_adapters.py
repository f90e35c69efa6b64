"""An adapter that cannot be packed fails its own requests, whoever got it into the store; its neighbours never notice.

A worker refuses all of these before they are stored. Here they are forced on the engine, as field reports A10, A14 and
A16 to A18 ask: beside them, in the same steps, run the base model and sound adapters, whose answers are PEFT's.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from lorikeet_engine.build import Engine
from lorikeet_engine.errors import EngineError
from lorikeet_engine.model_spec import load_model_spec
from lorikeet_engine.ops.native.ops import NativeCpuOps
from tests.engine.equality.adapters.conftest import OpenEngine
from tests.support.device import random_ids
from tests.support.lora_files import normalise_folder
from tests.support.ops_cases import NATIVE_LIBRARY
from tests.support.peft_adapters import OPTIONS
from tests.support.tiny_engine import BASE, TinyBench, run
from tests.support.tiny_models import VOCAB, save_adapter, save_model

SOUND = ("all_linear", "lora_bias", "dora")
NAN, INFINITY = struct.pack("<f", float("nan")), struct.pack("<f", float("inf"))


class Marker:
    """Unpickling it leaves a file behind."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Path.touch, (self._path,)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> TinyBench:
    folder = tmp_path_factory.mktemp("adapters")
    directory = save_model("llama", folder / "model")
    adapters = {kind: save_adapter(directory, folder / kind, **OPTIONS[kind]) for kind in (*SOUND, "rslora_64")}
    return TinyBench(directory, folder / "store", NativeCpuOps(NATIVE_LIBRARY), adapters)


def place_of(data: bytes, tensor: str) -> tuple[int, int]:
    """Where a tensor of a normalised file begins and ends."""
    (n_header,) = struct.unpack_from("<Q", data)
    begin, end = json.loads(data[8 : 8 + n_header])[tensor]["data_offsets"]
    return 8 + n_header + begin, 8 + n_header + end


def with_bytes(data: bytes, tensor: str, value: bytes, n: int = 1) -> bytes:
    """The file with the first of a tensor's numbers exchanged."""
    begin, _ = place_of(data, tensor)
    return data[:begin] + value * n + data[begin + len(value) * n :]


def other_base(folder: Path) -> bytes:
    """An adapter of a sibling with wider heads."""
    directory = save_model("llama_wide_heads", folder / "sibling")
    adapter = save_adapter(directory, folder / "adapter", **OPTIONS["all_linear"])
    return normalise_folder(adapter, load_model_spec(directory).module_table("sibling"))[2]


LAST_B = "layers.1.mlp.down_proj.lora_B"
FIRST_A = "layers.0.self_attn.q_proj.lora_A"
MAGNITUDE = "layers.1.mlp.up_proj.magnitude"
BIAS = "layers.0.self_attn.v_proj.bias"

# What is put into the store under its own digest, and what a refused request must be told.
FORCED: dict[str, tuple[Callable[[TinyBench, Path], bytes], str]] = {
    "A16 NaN in B": (lambda b, _: with_bytes(b.files["all_linear"], LAST_B, NAN), LAST_B),
    "A16 infinity in A": (lambda b, _: with_bytes(b.files["all_linear"], FIRST_A, INFINITY), FIRST_A),
    "A16 infinity in a bias": (lambda b, _: with_bytes(b.files["lora_bias"], BIAS, INFINITY), BIAS),
    "A16 NaN in a magnitude": (lambda b, _: with_bytes(b.files["dora"], MAGNITUDE, NAN), MAGNITUDE),
    "A16 values that overflow when scaled": (
        lambda b, _: with_bytes(b.files["all_linear"], LAST_B, struct.pack("<f", 3e38)),
        LAST_B,
    ),
    "A10 rank above the maximum": (lambda b, _: b.files["rslora_64"], "rank is 64, allowed here: at most 16"),
    "A10 A18 another base model": (lambda _, folder: other_base(folder), "layers.0.self_attn.q_proj.lora_A"),
    "A14 an option nobody knows": (
        lambda b, _: b.files["dora"].replace(b".magnitude", b".attitudes"),
        "is damaged",
    ),
    "A17 a pickle": (lambda _, folder: pickle.dumps(Marker(folder / "marker")), "is damaged"),
    "A18 nothing": (lambda _b, _f: b"", "is damaged"),
    "A18 cut in the header's length": (lambda b, _: b.files["all_linear"][:4], "is damaged"),
    "A18 cut in the header": (lambda b, _: b.files["all_linear"][:100], "is damaged"),
    "A18 cut in the last tensor": (lambda b, _: b.files["all_linear"][:-2], "is damaged"),
    "A18 a header longer than the file": (lambda b, _: b"\xff" * 7 + b.files["all_linear"][7:], "is damaged"),
}


def ask_beside_sound_ones(engine: Engine, bench: TinyBench, bad: str, n_bad: int = 2) -> list[EngineError | None]:
    """The errors of requests for `bad`, whose neighbours must get PEFT's answers."""
    names = [BASE, *SOUND]
    prompts = [random_ids(5 + n, vocab=VOCAB, seed=n) for n in range(len(names) + n_bad)]
    requests = [bench.request(name, prompt, name) for name, prompt in zip(names, prompts, strict=False)]
    for n in range(n_bad):
        requests.insert(1 + 2 * n, bench.request(f"bad {n}", prompts[-1 - n], bad))
    found = run(engine, requests)
    for name, prompt in zip(names, prompts, strict=False):
        assert found[name].error is None
        assert found[name].tokens == bench.answer(prompt, name)
    assert not any(found[f"bad {n}"].tokens for n in range(n_bad))
    return [found[f"bad {n}"].error for n in range(n_bad)]


@pytest.mark.parametrize("case", FORCED)
def test_what_cannot_be_packed_fails_its_own_requests_only(
    case: str, bench: TinyBench, open_engine: OpenEngine, tmp_path: Path
) -> None:
    make, told = FORCED[case]
    bench.keep(case, make(bench, tmp_path))
    engine = open_engine(bench, max_rank=16)
    for error in ask_beside_sound_ones(engine, bench, case):
        assert error is not None
        assert error.code == ("integrity_error" if told == "is damaged" else "adapter_unavailable")
        assert told in error.message
    assert not (tmp_path / "marker").exists()
    assert all(error is not None for error in ask_beside_sound_ones(engine, bench, case)), "and again, when it is known"
    engine.loop.residency.audit()


def test_a10_a_file_that_is_missing_fails_its_own_requests_only(bench: TinyBench, open_engine: OpenEngine) -> None:
    bench.digests["missing"] = hashlib.sha256(b"missing").hexdigest()
    for error in ask_beside_sound_ones(open_engine(bench), bench, "missing"):
        assert error is not None
        assert error.code == "adapter_unavailable"
        assert "holds no adapter" in error.message


def test_a16_bytes_that_have_changed_in_the_store_are_named_as_damage(
    bench: TinyBench, open_engine: OpenEngine
) -> None:
    """One number of a sound adapter."""
    changed = with_bytes(bench.files["rslora_64"], FIRST_A, struct.pack("<f", 0.25))
    bench.keep("changed", changed, digest=hashlib.sha256(changed + b"was").hexdigest())
    for error in ask_beside_sound_ones(open_engine(bench), bench, "changed"):
        assert error is not None
        assert error.code == "integrity_error"


def test_an_adapter_larger_than_the_arena_fails_its_own_requests_only(
    bench: TinyBench, open_engine: OpenEngine
) -> None:
    largest = max(bench.serving_bytes[name] for name in SOUND)
    assert bench.serving_bytes["rslora_64"] > largest
    engine = open_engine(bench, adapter_pool_bytes=largest, max_adapters_per_step=1)
    for error in ask_beside_sound_ones(engine, bench, "rslora_64"):
        assert error is not None
        assert error.code == "adapter_unavailable"
