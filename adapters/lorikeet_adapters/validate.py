"""Are these files an adapter that the engine serves exactly, and which one?

Owns the order of the checks: configuration, headers, names and shapes, then one pass over the weights. It reads the
files it is given and nothing else, keeps nothing, and needs no torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from lorikeet_adapters.config.patterns import limited_time
from lorikeet_adapters.config.settings import MAX_CONFIG_BYTES, LoraSettings, as_record, read_config
from lorikeet_adapters.errors import AdapterRejected, listed, quoted
from lorikeet_adapters.files import CONFIG_FILE
from lorikeet_adapters.finite import scan_weights
from lorikeet_adapters.header import TensorEntry
from lorikeet_adapters.manifest import BIAS, GRAIN, BlockShape, extent_grains
from lorikeet_adapters.modules import MODULES, ModuleTable
from lorikeet_adapters.rules.leftovers import names_same_model, unmatched_patterns, untouched_targets
from lorikeet_adapters.rules.pairs import Pair, find_pairs
from lorikeet_adapters.rules.surroundings import check_surroundings
from lorikeet_adapters.rules.whole_model import WholeModel
from lorikeet_adapters.weights import open_files, read_index_bytes, read_tensors

MAX_MAGNITUDE: Final = 65_504.0  # the largest float16: within it every serving dtype stays finite
DTYPE_NAMES: Final = {"F16": "float16", "BF16": "bfloat16", "F32": "float32"}

_NO_OP: Final = "adapter_is_noop: every pair has a matrix of zeros, so answers equal those of the base model."


@dataclass(frozen=True, slots=True)
class Delta:
    """One module's pair: its place, what it is multiplied with, and where its matrices lie in the files.

    `kind` says what the one-dimensional `vector` is: manifest.BIAS, the trained bias of lora_B, which the scale
    multiplies as well; manifest.DORA, DoRA's magnitude; or 0 without one.
    """

    layer: int
    module: str
    rank: int
    scale: float
    a: TensorEntry
    b: TensorEntry
    vector: TensorEntry | None = None
    kind: int = 0

    @property
    def block(self) -> BlockShape:
        """Its size in the arena."""
        has_vector = self.vector is not None
        return BlockShape(self.layer, self.module, self.rank, self.a.shape[1], self.b.shape[0], has_vector)


@dataclass(frozen=True, slots=True)
class ValidatedAdapter:
    """An adapter that passed every check; `deltas` are in canonical order."""

    deltas: tuple[Delta, ...]
    n_layers: int
    rank_max: int
    target_modules: tuple[str, ...]
    dtype: str
    tensor_count: int
    warnings: tuple[str, ...]
    config: dict[str, object]

    def serving_bytes(self, itemsize: int) -> int:
        """Bytes it occupies in an arena whose elements have `itemsize` bytes."""
        grains = extent_grains(self.n_layers, itemsize, (delta.block for delta in self.deltas))
        return grains * GRAIN * itemsize


def validate_adapter(
    *, config: Path, weights: Sequence[Path], index: Path | None, table: ModuleTable, max_rank: int
) -> ValidatedAdapter:
    """The adapter in these files; raises AdapterRejected with the first rule it breaks.

    `weights` are in the order of `files.weight_files`; `index` is the index of shards, None for a single file. This is
    the only place where expressions of a configuration are evaluated.
    """
    settings = read_config(read_config_bytes(config))
    with open_files(weights) as files:
        tensors = read_tensors(files, None if index is None else read_index_bytes(index))
        settings.check_expressions()
        with limited_time():
            pairs = find_pairs(settings, tensors, table, max_rank)
            model = WholeModel.around(pairs, table)
            check_surroundings(settings, pairs, model)
            warnings = tuple(_warnings(settings, pairs, model))
        if _check_weights(files, pairs):
            warnings = (_NO_OP, *warnings)
    present = {pair.module for pair in pairs}
    return ValidatedAdapter(
        deltas=tuple(_delta(pair) for pair in pairs),
        n_layers=table.n_layers,
        rank_max=max(pair.rank for pair in pairs),
        target_modules=tuple(module for module in MODULES if module in present),
        dtype=DTYPE_NAMES[pairs[0].a.dtype],
        tensor_count=len(tensors),
        warnings=warnings,
        config=as_record(settings),
    )


def read_config_bytes(config: Path) -> bytes:
    """The configuration file, read no further than one byte past its bound."""
    with config.open("rb") as file:
        data = file.read(MAX_CONFIG_BYTES + 1)
    if not data:
        raise AdapterRejected("config_invalid", subject=CONFIG_FILE, found="an empty file", allowed="one JSON object")
    return data


def _delta(pair: Pair) -> Delta:
    return Delta(pair.layer, pair.module, pair.rank, pair.scale, pair.a, pair.b, pair.vector, pair.kind)


def _check_weights(files: Sequence[BinaryIO], pairs: tuple[Pair, ...]) -> bool:
    """Check every value once; True when the whole adapter changes nothing whatever the base model is."""
    is_noop = True
    for pair in pairs:
        a = _check_tensor(files, pair.a, 1.0)
        b = _check_tensor(files, pair.b, pair.scale)
        vector = 0.0
        if pair.vector is not None:
            vector = _check_tensor(files, pair.vector, pair.scale if pair.kind == BIAS else 1.0)
        # A magnitude changes nothing when it is the norm of the base weights, which are not at hand.
        is_noop = is_noop and (a == 0.0 or b == 0.0) and (pair.vector is None or (pair.kind == BIAS and vector == 0.0))
    return is_noop


def _check_tensor(files: Sequence[BinaryIO], tensor: TensorEntry, scale: float) -> float:
    scan = scan_weights(files[tensor.file], tensor)
    if scan.n_non_finite:
        raise AdapterRejected(
            "non_finite_weights",
            subject=tensor.name,
            found=f"{scan.n_non_finite} values that are NaN or infinite",
            allowed="finite values",
        )
    largest = scan.max_magnitude * max(scale, 1.0)
    if largest > MAX_MAGNITUDE:
        raise AdapterRejected(
            "weight_out_of_range",
            subject=tensor.name,
            found=f"a magnitude of {largest:g} after scaling",
            allowed=f"at most {MAX_MAGNITUDE:g}",
        )
    return scan.max_magnitude


def _warnings(settings: LoraSettings, pairs: tuple[Pair, ...], model: WholeModel) -> Iterator[str]:
    missing = untouched_targets(settings, pairs, model)
    if missing:
        yield f"target_without_tensors: the configuration targets what the file has no tensors for: {listed(missing)}."
    n_unmatched = unmatched_patterns(settings, pairs)
    if n_unmatched:
        yield f"pattern_without_module: {n_unmatched} keys of rank_pattern and alpha_pattern match no module."
    name = settings.base_model_name
    if name and not names_same_model(name, model.table):
        served = quoted(model.table.base_model)
        yield f"base_model_name_differs: the adapter names {quoted(name)}, the served model is {served}."
