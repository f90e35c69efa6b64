"""The normalised file of an adapter, whose SHA-256 is the adapter's identity.

It is a safetensors file with one spelling: tensors in canonical order under short names, the scale of every pair as a
float64, no metadata of the writer. Two uploads that mean the same matrices, vectors and scales give the same bytes.
Workers write it, engines read it; neither has to look at what a tenant uploaded again.

    scales | layers.N.MODULE.lora_A | .lora_B | .bias or .magnitude, where the pair has one | the next pair ...
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Final

from lorikeet_adapters.errors import AdapterImageDamaged, AdapterRejected
from lorikeet_adapters.finite import CHUNK_BYTES, read_fully
from lorikeet_adapters.header import (
    MAX_FILE_BYTES,
    MAX_HEADER_BYTES,
    MAX_TENSORS,
    WEIGHT_WIDTHS,
    Bounds,
    Header,
    TensorEntry,
    read_header,
)
from lorikeet_adapters.manifest import BIAS, DORA
from lorikeet_adapters.modules import MODULES
from lorikeet_adapters.validate import Delta, ValidatedAdapter
from lorikeet_adapters.weights import open_files

FORMAT: Final = "lorikeet-adapter-1"
SCALES: Final = "scales"

# As many tensors and bytes as an adapter may have, and the scales beside them.
_BOUNDS: Final = Bounds(
    {**WEIGHT_WIDTHS, "F64": 8}, max_bytes=MAX_FILE_BYTES + 2 * MAX_HEADER_BYTES, max_tensors=MAX_TENSORS + 1
)
_KINDS: Final = {"bias": BIAS, "magnitude": DORA}
_VECTOR_NAMES: Final = {kind: name for name, kind in _KINDS.items()}
_NAME: Final = re.compile(r"layers\.([0-9]+)\.(.+)\.(lora_A|lora_B|bias|magnitude)")
_HEADER_ALIGNMENT: Final = 8


@dataclass(frozen=True, slots=True)
class NormalisedAdapter:
    """The content of a normalised file; the deltas' offsets point into it."""

    deltas: tuple[Delta, ...]


def write_normalised(adapter: ValidatedAdapter, weights: Sequence[Path], out: BinaryIO) -> str:
    """Write the normalised file to `out`, from front to back; returns its SHA-256 in hexadecimal.

    `weights` are the files that were validated, in the same order.
    """
    digest = hashlib.sha256()
    with open_files(weights) as sources:
        for piece in _pieces(adapter, sources):
            digest.update(piece)
            out.write(piece)
    return digest.hexdigest()


def read_normalised_file(data: bytes, digest: str) -> NormalisedAdapter:
    """The deltas of a normalised file whose digest must be `digest`; raises AdapterImageDamaged.

    The one place where stored bytes are held against their digest: nobody can use them without it.
    """
    if hashlib.sha256(data).hexdigest() != digest:
        raise AdapterImageDamaged(digest, "its content has another digest")
    try:
        header = read_header(BytesIO(data), len(data), bounds=_BOUNDS)
    except AdapterRejected as error:
        raise AdapterImageDamaged(digest, error.message) from None
    if header.metadata.get("format") != FORMAT:
        raise AdapterImageDamaged(digest, f"its format is not {FORMAT}")
    return NormalisedAdapter(_deltas(data, header, digest))


def _pieces(adapter: ValidatedAdapter, sources: Sequence[BinaryIO]) -> Iterable[bytes | memoryview]:
    header = _header(adapter)
    yield struct.pack("<Q", len(header))
    yield header
    yield struct.pack(f"<{len(adapter.deltas)}d", *(delta.scale for delta in adapter.deltas))
    buffer = memoryview(bytearray(CHUNK_BYTES))
    for delta in adapter.deltas:
        for _, tensor in _tensors(delta):
            source = sources[tensor.file]
            source.seek(tensor.begin)
            for begin in range(tensor.begin, tensor.end, CHUNK_BYTES):
                piece = buffer[: min(CHUNK_BYTES, tensor.end - begin)]
                read_fully(source, piece)
                yield piece


def _header(adapter: ValidatedAdapter) -> bytes:
    entries: dict[str, object] = {"__metadata__": {"format": FORMAT}}
    position = 8 * len(adapter.deltas)
    entries[SCALES] = {"dtype": "F64", "shape": [len(adapter.deltas)], "data_offsets": [0, position]}
    for delta in adapter.deltas:
        for name, tensor in _tensors(delta):
            end = position + tensor.end - tensor.begin
            entry = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [position, end]}
            entries[f"layers.{delta.layer}.{delta.module}.{name}"] = entry
            position = end
    text = json.dumps(entries, separators=(",", ":")).encode("ascii")
    return text + b" " * (-len(text) % _HEADER_ALIGNMENT)


def _tensors(delta: Delta) -> Iterator[tuple[str, TensorEntry]]:
    yield "lora_A", delta.a
    yield "lora_B", delta.b
    if delta.vector is not None:
        yield _VECTOR_NAMES[delta.kind], delta.vector


def _deltas(data: bytes, header: Header, digest: str) -> tuple[Delta, ...]:
    scales_entry, *tensors = header.tensors
    if scales_entry.name != SCALES or scales_entry.dtype != "F64" or len(scales_entry.shape) != 1:
        raise AdapterImageDamaged(digest, "its scales are not one for each pair")
    scales: tuple[float, ...] = struct.unpack_from(f"<{scales_entry.shape[0]}d", data, scales_entry.begin)
    groups = _groups(tensors, digest)
    if len(groups) != len(scales):
        raise AdapterImageDamaged(digest, "its scales are not one for each pair")
    return tuple(_delta(place, group, scale, digest) for (place, group), scale in zip(groups, scales, strict=True))


def _groups(tensors: Iterable[TensorEntry], digest: str) -> list[tuple[tuple[int, str], dict[str, TensorEntry]]]:
    """The tensors of each module, which lie one after another; a second run of the same module is damage."""
    groups: dict[tuple[int, str], dict[str, TensorEntry]] = {}
    previous: tuple[int, str] | None = None
    for tensor in tensors:
        name = _NAME.fullmatch(tensor.name)
        if name is None or name[2] not in MODULES:
            raise AdapterImageDamaged(digest, "it names a tensor that is no part of a pair")
        place = (int(name[1]), name[2])
        if place in groups and place != previous:
            raise AdapterImageDamaged(digest, "its tensors are not in order")
        groups.setdefault(place, {})[name[3]] = tensor
        previous = place
    return list(groups.items())


def _delta(place: tuple[int, str], group: dict[str, TensorEntry], scale: float, digest: str) -> Delta:
    names = list(group)
    if names[:2] != ["lora_A", "lora_B"] or names[2:] not in ([], ["bias"], ["magnitude"]):
        raise AdapterImageDamaged(digest, "its tensors are not pairs")
    a, b = group["lora_A"], group["lora_B"]
    if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[0] != b.shape[1]:
        raise AdapterImageDamaged(digest, "a pair has matrices that do not fit")
    if len(names) == 2:
        return Delta(*place, a.shape[0], scale, a, b)
    vector = group[names[2]]
    if vector.shape != (b.shape[0],):
        raise AdapterImageDamaged(digest, "a pair has a vector that does not fit")
    return Delta(*place, a.shape[0], scale, a, b, vector, _KINDS[names[2]])
