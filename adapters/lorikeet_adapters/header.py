"""The header of a safetensors file, read by our own strict reader.

Owns every bound on the file's structure; it runs before any library sees the file. It knows nothing of LoRA:
what the names mean is the business of `rules`.

Invariant of a returned header: the tensors, in order of offset, cover the data exactly once from its first byte to
its last.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO, Final

from lorikeet_adapters import strict_json
from lorikeet_adapters.errors import AdapterRejected, RejectCode, quoted
from lorikeet_adapters.files import WEIGHTS_FILE

MIN_FILE_BYTES: Final = 10
MAX_FILE_BYTES: Final = 2 << 30
MAX_HEADER_BYTES: Final = 2 << 20
MAX_HEADER_PADDING: Final = 1 << 10
MAX_METADATA_KEYS: Final = 64
MAX_METADATA_BYTES: Final = 16 << 10
MAX_TENSORS: Final = 16_384
MAX_DIMENSION: Final = 1 << 20

WEIGHT_WIDTHS: Final[Mapping[str, int]] = {"F16": 2, "BF16": 2, "F32": 4}

_LENGTH: Final = struct.Struct("<Q")
_TAR_MAGIC_AT: Final = 257
_PROBE_BYTES: Final = 265
_MAGICS: Final = (
    (b"PK", "a zip archive, perhaps a torch pickle"),
    (b"\x1f\x8b", "gzip"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ", "xz"),
    (b"(\xb5/\xfd", "zstd"),
    (b"GGUF", "GGUF"),
    (b"\x89HDF", "HDF5"),
    (b"\x7fELF", "an executable"),
)
# A tensor's entry has three members, two dimensions at most and two offsets, in one object and two lists; no name in
# an adapter has a comma or a bracket.
_COMMAS_PER_TENSOR: Final = 5
_BRACKETS_PER_TENSOR: Final = 3


@dataclass(frozen=True, slots=True)
class Bounds:
    """What may occur in a file: how many bytes and tensors, and elements of which dtypes."""

    widths: Mapping[str, int]
    max_bytes: int = MAX_FILE_BYTES
    min_tensors: int = 2
    max_tensors: int = MAX_TENSORS


WHOLE_ADAPTER: Final = Bounds(WEIGHT_WIDTHS)
SHARD: Final = Bounds(WEIGHT_WIDTHS, min_tensors=1)


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One tensor, which of the weight files it lies in, and where its bytes lie there (absolute offsets)."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int
    file: int = 0


@dataclass(frozen=True, slots=True)
class Header:
    """All tensors of a file in order of offset."""

    tensors: tuple[TensorEntry, ...]
    metadata: Mapping[str, str]
    data_begin: int


def read_header(
    file: BinaryIO, size: int, *, name: str = WEIGHTS_FILE, number: int = 0, bounds: Bounds = WHOLE_ADAPTER
) -> Header:
    """The checked header of `file`, which holds `size` bytes and is the weight file of this name and number."""
    return _Reader(name, number, bounds).read(file, size)


@dataclass(frozen=True, slots=True)
class _Reader:
    """The checks, for a file of one name."""

    name: str
    number: int
    bounds: Bounds

    def read(self, file: BinaryIO, size: int) -> Header:
        if size < MIN_FILE_BYTES:
            raise self._rejected("header_length_invalid", f"{size} bytes", f"at least {MIN_FILE_BYTES} bytes")
        if size > self.bounds.max_bytes:
            raise self._rejected("adapter_too_large", f"{size} bytes", f"at most {self.bounds.max_bytes} bytes")
        file.seek(0)
        probe = file.read(_PROBE_BYTES)
        self._check_magic(probe)
        length = self._length(probe, size)
        file.seek(_LENGTH.size)
        raw = file.read(length)
        if len(raw) != length:
            raise self._rejected("size_mismatch", f"{_LENGTH.size + len(raw)} readable bytes", f"{size} bytes")
        entries = self._parse(raw)
        metadata = self._metadata(entries.pop("__metadata__", {}))
        if not self.bounds.min_tensors <= len(entries) <= self.bounds.max_tensors:
            raise self._wrong_count(f"{len(entries)} tensors")
        data_begin = _LENGTH.size + length
        tensors = sorted(
            (self._entry(name, value, data_begin) for name, value in entries.items()),
            key=lambda tensor: (tensor.begin, tensor.end),
        )
        self._check_coverage(tensors, data_begin, size)
        return Header(tensors=tuple(tensors), metadata=metadata, data_begin=data_begin)

    def _check_magic(self, probe: bytes) -> None:
        """Refuse a file that is something else under a wrong name; nothing in it is parsed, unpacked or scanned.

        A safetensors file may begin with the same two bytes as a pickle or gzip by chance (a header of 640 bytes,
        say), so bytes that are a sound length followed by a brace go on to the strict parser, which can only refuse
        them.
        """
        if len(probe) > _LENGTH.size and probe[_LENGTH.size] == ord("{"):
            (length,) = _LENGTH.unpack_from(probe)
            if length <= MAX_HEADER_BYTES:
                return
        found = next((what for magic, what in _MAGICS if probe.startswith(magic)), None)
        if len(probe) > 1 and probe[0] == 0x80 and probe[1] <= 5:
            found = "a Python pickle"
        if probe[_TAR_MAGIC_AT : _TAR_MAGIC_AT + 5] == b"ustar":
            found = "a tar archive"
        if found is not None:
            raise AdapterRejected(
                "unsupported_format",
                subject=self.name,
                found=found,
                allowed="safetensors",
                advice="Save the adapter with save_pretrained(..., safe_serialization=True), or convert it on your "
                "machine with `lorikeet adapters convert`.",
            )

    def _length(self, probe: bytes, size: int) -> int:
        length: int
        (length,) = _LENGTH.unpack_from(probe)
        room = size - _LENGTH.size
        if length < 2 or length > room:
            # A length that fits no file of ours is noise or an attack; one beyond this file's end is a cut-off file.
            raise self._rejected(
                "header_length_invalid", f"a header length of {length}", f"2 to {room} in a file of {size} bytes"
            )
        if length > MAX_HEADER_BYTES:
            raise self._rejected("header_too_large", f"a header of {length} bytes", f"at most {MAX_HEADER_BYTES} bytes")
        return length

    def _parse(self, raw: bytes) -> dict[str, object]:
        text = raw.rstrip(b" ")
        if len(raw) - len(text) > MAX_HEADER_PADDING:
            raise self._rejected(
                "header_invalid", "long padding", f"at most {MAX_HEADER_PADDING} spaces after the header"
            )
        if not (text.startswith(b"{") and text.endswith(b"}")):
            raise self._rejected("header_invalid", "text outside the object", "one JSON object, then only spaces")
        # Counted before they are made into objects, which take fifty times the memory of the text.
        n_commas, n_brackets = text.count(b","), text.count(b"[") + text.count(b"{")
        if (
            n_commas > _COMMAS_PER_TENSOR * self.bounds.max_tensors + MAX_METADATA_BYTES
            or n_brackets > _BRACKETS_PER_TENSOR * self.bounds.max_tensors + MAX_METADATA_BYTES
        ):
            raise self._wrong_count("parts of more tensors")
        try:
            entries = strict_json.loads(text, max_depth=4)
        except strict_json.StrictJsonError as error:
            raise self._rejected(
                "header_invalid", f"{error.code} ({error.message})", "one strict JSON object"
            ) from None
        if not isinstance(entries, dict):
            raise self._rejected("header_invalid", "no object", "one JSON object")
        return entries

    def _metadata(self, value: object) -> dict[str, str]:
        if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
            raise self._rejected("metadata_invalid", "__metadata__ with other than text", "an object of strings")
        n_bytes = sum(len(key.encode()) + len(text.encode()) for key, text in value.items())
        if len(value) > MAX_METADATA_KEYS or n_bytes > MAX_METADATA_BYTES:
            found = f"__metadata__ of {len(value)} keys and {n_bytes} bytes"
            allowed = f"at most {MAX_METADATA_KEYS} keys and {MAX_METADATA_BYTES} bytes"
            raise self._rejected("metadata_invalid", found, allowed)
        return value

    def _entry(self, name: str, value: object, data_begin: int) -> TensorEntry:
        if not isinstance(value, dict) or value.keys() != {"dtype", "shape", "data_offsets"}:
            raise _tensor_rejected(name, "tensor_entry_invalid", "other members", "dtype, shape and data_offsets")
        dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
        widths = self.bounds.widths
        if not isinstance(dtype, str) or dtype not in widths:
            raise _tensor_rejected(name, "dtype_unsupported", quoted(dtype), ", ".join(widths))
        if not _are_integers(shape) or not _are_integers(offsets) or len(offsets) != 2:
            raise _tensor_rejected(name, "tensor_entry_invalid", "shape or data_offsets", "lists of whole numbers")
        if not 1 <= len(shape) <= 2 or not all(1 <= dimension <= MAX_DIMENSION for dimension in shape):
            allowed = f"one or two dimensions of 1 to {MAX_DIMENSION}"
            raise _tensor_rejected(name, "shape_invalid", quoted(shape), allowed)
        n_bytes = math.prod(shape) * widths[dtype]
        if n_bytes > self.bounds.max_bytes:
            raise _tensor_rejected(name, "size_overflow", f"{n_bytes} bytes", f"at most {self.bounds.max_bytes} bytes")
        begin, end = offsets
        if begin < 0 or end - begin != n_bytes:
            found = f"data_offsets {quoted(offsets)}"
            raise _tensor_rejected(name, "offset_mismatch", found, f"{n_bytes} bytes for shape {shape} of {dtype}")
        return TensorEntry(name, dtype, tuple(shape), data_begin + begin, data_begin + end, self.number)

    def _check_coverage(self, tensors: list[TensorEntry], data_begin: int, size: int) -> None:
        position = data_begin
        for tensor in tensors:
            if tensor.begin < position:
                raise _tensor_rejected(tensor.name, "offsets_overlap", "bytes of another tensor", "bytes of its own")
            if tensor.begin > position:
                found = f"{tensor.begin - position} unused bytes before it"
                raise _tensor_rejected(tensor.name, "offsets_gap", found, "no gap")
            position = tensor.end
        if position > size:
            raise self._rejected("size_mismatch", f"{size} bytes", f"{position} bytes, as the header says")
        if position < size:
            raise self._rejected("trailing_data", f"{size - position} bytes after the last tensor", "none")

    def _wrong_count(self, found: str) -> AdapterRejected:
        allowed = f"{self.bounds.min_tensors} to {self.bounds.max_tensors} tensors"
        return self._rejected("tensor_count_invalid", found, allowed)

    def _rejected(self, code: RejectCode, found: str, allowed: str) -> AdapterRejected:
        return AdapterRejected(code, subject=self.name, found=found, allowed=allowed)


def _are_integers(value: object) -> bool:
    return isinstance(value, list) and all(type(item) is int for item in value)


def _tensor_rejected(name: str, code: RejectCode, found: str, allowed: str) -> AdapterRejected:
    return AdapterRejected(code, subject=quoted(name).strip("'"), found=found, allowed=allowed)
