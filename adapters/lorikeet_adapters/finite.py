"""Are the weights numbers that can be served? A stream over the file; memory does not grow with it.

Works on the bit patterns, so that bfloat16 needs no library: with the sign removed, the unsigned integers of an
IEEE format are ordered as the magnitudes are, and everything from the pattern of infinity on is not finite.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

import numpy as np

from lorikeet_adapters.errors import AdapterRejected
from lorikeet_adapters.files import WEIGHTS_FILE
from lorikeet_adapters.header import TensorEntry

CHUNK_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class WeightScan:
    """What one tensor holds: values that are not finite, and the largest magnitude among the others."""

    n_non_finite: int
    max_magnitude: float


@dataclass(frozen=True, slots=True)
class _Format:
    integer: np.dtype[Any]
    infinity: int
    sign_mask: int


_FORMATS: Final[Mapping[str, _Format]] = {
    "F16": _Format(np.dtype("<u2"), 0x7C00, 0x7FFF),
    "BF16": _Format(np.dtype("<u2"), 0x7F80, 0x7FFF),
    "F32": _Format(np.dtype("<u4"), 0x7F800000, 0x7FFFFFFF),
}


def scan_weights(file: BinaryIO, tensor: TensorEntry) -> WeightScan:
    """Read one tensor of `file` in pieces."""
    number = _FORMATS[tensor.dtype]
    buffer = bytearray(min(CHUNK_BYTES, tensor.end - tensor.begin))
    n_non_finite = 0
    largest = 0
    file.seek(tensor.begin)
    position = tensor.begin
    while position < tensor.end:
        piece = memoryview(buffer)[: min(len(buffer), tensor.end - position)]
        read_fully(file, piece)
        position += len(piece)
        magnitudes = np.frombuffer(piece, number.integer) & number.integer.type(number.sign_mask)
        top = int(magnitudes.max())
        if top >= number.infinity:
            n_non_finite += int(np.count_nonzero(magnitudes >= number.infinity))
        else:
            largest = max(largest, top)
    return WeightScan(n_non_finite, _magnitude(tensor.dtype, largest))


def read_fully(file: BinaryIO, target: memoryview) -> None:
    """Fill `target`; a file that has become shorter than its header says is refused."""
    done = 0
    while done < len(target):
        count = file.readinto(target[done:])  # type: ignore[attr-defined]
        if not count:
            raise AdapterRejected(
                "size_mismatch", subject=WEIGHTS_FILE, found="an early end", allowed="as many bytes as the header says"
            )
        done += count


def _magnitude(dtype: str, bits: int) -> float:
    if dtype == "F16":
        return float(np.array([bits], "<u2").view("<f2")[0])
    # bfloat16 is the upper half of a float32.
    return float(np.array([bits << 16 if dtype == "BF16" else bits], "<u4").view("<f4")[0])
