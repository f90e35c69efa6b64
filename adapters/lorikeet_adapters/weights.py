"""The weight files of an adapter, one or several with an index, seen as one list of tensors.

Owns the index of shards: it must name exactly the tensors that the files have, each in the file it lies in. Knows
nothing of what the tensors mean, and reads no weight.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from lorikeet_adapters import strict_json
from lorikeet_adapters.errors import AdapterRejected, quoted
from lorikeet_adapters.files import INDEX_FILE, MAX_INDEX_BYTES, shard_names
from lorikeet_adapters.header import MAX_FILE_BYTES, MAX_TENSORS, SHARD, TensorEntry, read_header

# Every tensor is one member of the index; a few more are its own.
_MAX_INDEX_COMMAS: Final = MAX_TENSORS + 64


@contextmanager
def open_files(paths: Sequence[Path]) -> Iterator[list[BinaryIO]]:
    """All of the files, open for reading."""
    with ExitStack() as stack:
        yield [stack.enter_context(path.open("rb")) for path in paths]


def read_tensors(files: Sequence[BinaryIO], index: bytes | None) -> tuple[TensorEntry, ...]:
    """The tensors of all weight files, in the order of the files and then of their bytes.

    `files` are in the order of `files.weight_files`; `index` is the content of the index of shards, or None when the
    weights are in one file.
    """
    sizes = [os.fstat(file.fileno()).st_size for file in files]
    if index is None:
        (file,) = files
        return read_header(file, *sizes).tensors
    if sum(sizes) > MAX_FILE_BYTES:
        raise AdapterRejected(
            "adapter_too_large",
            subject=INDEX_FILE,
            found=f"shards of {sum(sizes)} bytes",
            allowed=f"at most {MAX_FILE_BYTES} bytes together",
        )
    names = shard_names(len(files))
    places = _read_index(index, names)
    tensors: list[TensorEntry] = []
    for number, (file, size, name) in enumerate(zip(files, sizes, names, strict=True)):
        tensors += read_header(file, size, name=name, number=number, bounds=SHARD).tensors
    _check_index(places, tensors, names)
    return tuple(tensors)


def read_index_bytes(path: Path) -> bytes:
    """The index file, read no further than one byte past its bound."""
    with path.open("rb") as file:
        return file.read(MAX_INDEX_BYTES + 1)


def _read_index(data: bytes, names: Sequence[str]) -> dict[str, str]:
    """The file of each tensor, as the index says."""
    if len(data) > MAX_INDEX_BYTES:
        raise AdapterRejected(
            "adapter_too_large", subject=INDEX_FILE, found=f"{len(data)} bytes", allowed=f"at most {MAX_INDEX_BYTES}"
        )
    if data.count(b",") > _MAX_INDEX_COMMAS:
        raise _index_invalid("more entries than an adapter has tensors", f"at most {MAX_TENSORS} tensors")
    try:
        index = strict_json.loads(data, max_depth=4)
    except strict_json.StrictJsonError as error:
        raise _index_invalid(f"{error.code} ({error.message})", "strict JSON") from None
    if not isinstance(index, dict) or not index.keys() <= {"metadata", "weight_map"}:
        raise _index_invalid("other members", "an object with weight_map and metadata")
    if not isinstance(index.get("metadata", {}), dict):
        raise _index_invalid("metadata that is no object", "an object, which is not interpreted")
    places = index.get("weight_map")
    if not isinstance(places, dict) or not places:
        raise _index_invalid("no weight_map", "the file of each tensor")
    wrong = next((name for name, file in places.items() if file not in names), None)
    if wrong is not None:
        raise _tensor_misplaced(wrong, f"the file {quoted(places[wrong])}", f"one of the {len(names)} shards")
    return places


def _check_index(places: dict[str, str], tensors: Sequence[TensorEntry], names: Sequence[str]) -> None:
    seen: dict[str, str] = {}
    for tensor in tensors:
        file = names[tensor.file]
        if tensor.name in seen:
            raise _tensor_misplaced(tensor.name, f"the tensor in {seen[tensor.name]} and in {file}", "one of the two")
        seen[tensor.name] = file
        if places.get(tensor.name) != file:
            said = places.get(tensor.name, "nowhere")
            raise _tensor_misplaced(
                tensor.name, f"the tensor in {file}, while the index says {said}", "an index that agrees"
            )
    missing = next((name for name in places if name not in seen), None)
    if missing is not None:
        raise _tensor_misplaced(missing, f"no such tensor in {places[missing]}", "exactly what the index says")
    if not 2 <= len(tensors) <= MAX_TENSORS:
        raise AdapterRejected(
            "tensor_count_invalid",
            subject=INDEX_FILE,
            found=f"{len(tensors)} tensors",
            allowed=f"2 to {MAX_TENSORS} tensors",
        )


def _index_invalid(found: str, allowed: str) -> AdapterRejected:
    return AdapterRejected("shard_index_invalid", subject=INDEX_FILE, found=found, allowed=allowed)


def _tensor_misplaced(name: str, found: str, allowed: str) -> AdapterRejected:
    return AdapterRejected("shard_index_invalid", subject=quoted(name).strip("'"), found=found, allowed=allowed)
