"""The normalised file of an adapter, whose SHA-256 is the adapter's identity.

It is a safetensors file with one spelling: tensors in canonical order under short names, the scale of every pair as a
float64, no metadata of the writer. Two uploads that mean the same matrices and scales give the same bytes. Workers
write it, engines read it; neither has to look at what a tenant uploaded again.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Final

from lorikeet_adapters.errors import AdapterImageDamaged, AdapterRejected
from lorikeet_adapters.finite import CHUNK_BYTES, read_fully
from lorikeet_adapters.header import WEIGHT_WIDTHS, Header, TensorEntry, read_header
from lorikeet_adapters.modules import MODULES
from lorikeet_adapters.validate import Delta, ValidatedAdapter

FORMAT: Final = "lorikeet-adapter-1"
SCALES: Final = "scales"

_WIDTHS: Final = {**WEIGHT_WIDTHS, "F64": 8}
_NAME: Final = re.compile(r"layers\.([0-9]+)\.(.+)\.lora_([AB])")
_HEADER_ALIGNMENT: Final = 8


@dataclass(frozen=True, slots=True)
class NormalisedAdapter:
    """The content of a normalised file; the deltas' offsets point into it."""

    deltas: tuple[Delta, ...]


def write_normalised(adapter: ValidatedAdapter, weights: Path, out: Path) -> str:
    """Write the normalised file to `out`; returns its SHA-256 in hexadecimal."""
    digest = hashlib.sha256()
    with weights.open("rb") as source, out.open("wb") as target:
        for piece in _pieces(adapter, source):
            digest.update(piece)
            target.write(piece)
    return digest.hexdigest()


def read_normalised_file(data: bytes, digest: str) -> NormalisedAdapter:
    """The deltas of a normalised file whose digest must be `digest`; raises AdapterImageDamaged."""
    if hashlib.sha256(data).hexdigest() != digest:
        raise AdapterImageDamaged(digest, "its content has another digest")
    try:
        header = read_header(BytesIO(data), len(data), widths=_WIDTHS)
    except AdapterRejected as error:
        raise AdapterImageDamaged(digest, error.message) from None
    if header.metadata.get("format") != FORMAT:
        raise AdapterImageDamaged(digest, f"its format is not {FORMAT}")
    return NormalisedAdapter(_deltas(data, header, digest))


def _pieces(adapter: ValidatedAdapter, source: BinaryIO) -> Iterable[bytes | memoryview]:
    header = _header(adapter)
    yield struct.pack("<Q", len(header))
    yield header
    yield struct.pack(f"<{len(adapter.deltas)}d", *(delta.scale for delta in adapter.deltas))
    buffer = memoryview(bytearray(CHUNK_BYTES))
    for delta in adapter.deltas:
        for tensor in (delta.a, delta.b):
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
        for side, tensor in (("A", delta.a), ("B", delta.b)):
            end = position + tensor.end - tensor.begin
            entry = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [position, end]}
            entries[f"layers.{delta.layer}.{delta.module}.lora_{side}"] = entry
            position = end
    text = json.dumps(entries, separators=(",", ":")).encode("ascii")
    return text + b" " * (-len(text) % _HEADER_ALIGNMENT)


def _deltas(data: bytes, header: Header, digest: str) -> tuple[Delta, ...]:
    scales_entry, *tensors = header.tensors
    if scales_entry.name != SCALES or scales_entry.dtype != "F64" or len(tensors) != 2 * scales_entry.shape[0]:
        raise AdapterImageDamaged(digest, "its scales are not one for each pair")
    scales: tuple[float, ...] = struct.unpack_from(f"<{scales_entry.shape[0]}d", data, scales_entry.begin)
    pairs = zip(tensors[::2], tensors[1::2], scales, strict=True)
    return tuple(_delta(a, b, scale, digest) for a, b, scale in pairs)


def _delta(a: TensorEntry, b: TensorEntry, scale: float, digest: str) -> Delta:
    a_name, b_name = _NAME.fullmatch(a.name), _NAME.fullmatch(b.name)
    if (
        a_name is None
        or b_name is None
        or (a_name[3], b_name[3]) != ("A", "B")
        or a_name.group(1, 2) != b_name.group(1, 2)
    ):
        raise AdapterImageDamaged(digest, "its tensors are not pairs")
    if a_name[2] not in MODULES or len(a.shape) != 2 or len(b.shape) != 2 or a.shape[0] != b.shape[1]:
        raise AdapterImageDamaged(digest, "a pair has matrices that do not fit")
    return Delta(int(a_name[1]), a_name[2], a.shape[0], scale, a, b)
