"""The strict reader of safetensors headers: what is sound passes and agrees with the library, the rest has a code."""

from __future__ import annotations

import json
import struct
import time
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from lorikeet_adapters.errors import AdapterRejected
from lorikeet_adapters.header import Header, read_header
from tests.support.lora_files import safetensors_bytes, tensors, with_header

GOOD = safetensors_bytes({"a": np.zeros((2, 4), np.float32), "b": np.zeros((4, 2), np.float32)})


def parse(data: bytes) -> Header:
    return read_header(BytesIO(data), len(data))


def code_of(data: bytes) -> str:
    with pytest.raises(AdapterRejected) as caught:
        parse(data)
    assert caught.value.message.isascii()
    return caught.value.code


def entry(begin: int, end: int, shape: Any = None, dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": [1, (end - begin) // 4] if shape is None else shape, "data_offsets": [begin, end]}


def file_of(entries: dict[str, Any], n_data: int) -> bytes:
    return with_header(json.dumps(entries).encode(), b"\0" * n_data)


def two(first: dict[str, Any], second: dict[str, Any] | None = None, n_data: int = 16) -> bytes:
    return file_of({"a": first, "b": second or entry(8, 16)}, n_data)


def test_our_reader_agrees_with_the_library_on_what_the_library_writes() -> None:
    content = tensors()
    data = safetensors.numpy.save(content, {"format": "pt"})
    header = parse(data)
    assert header.metadata == {"format": "pt"}
    assert {tensor.name: tensor.shape for tensor in header.tensors} == {n: a.shape for n, a in content.items()}
    for tensor in header.tensors:
        assert data[tensor.begin : tensor.end] == content[tensor.name].tobytes()


def test_the_library_reads_what_we_accept() -> None:
    assert len(parse(GOOD).tensors) == len(safetensors.numpy.load(GOOD)) == 2


@pytest.mark.parametrize(
    ("code", "data"),
    [
        ("unsupported_format", b"PK\x03\x04" + bytes(64)),
        ("unsupported_format", b"\x80\x02}q\x00(X\x05\x00\x00\x00" + bytes(64)),
        ("unsupported_format", b"\x80\x05\x95" + bytes(64)),
        ("unsupported_format", b"\x1f\x8b\x08" + bytes(64)),
        ("unsupported_format", b"7z\xbc\xaf\x27\x1c" + bytes(64)),
        ("unsupported_format", b"GGUF\x03" + bytes(64)),
        ("unsupported_format", b"\x89HDF\r\n\x1a\n" + bytes(64)),
        ("unsupported_format", b"\x7fELF" + bytes(64)),
        ("unsupported_format", b"ab".ljust(257, b"\0") + b"ustar\x0000" + bytes(64)),
        ("header_length_invalid", b""),
        ("header_length_invalid", b"\x08\0\0\0"),
        ("header_length_invalid", b"\x08\0\0\0\0\0\0\0{"),
        ("header_length_invalid", struct.pack("<Q", 0) + b"{}{}"),
        ("header_length_invalid", struct.pack("<Q", 1) + b"{}{}"),
        ("header_length_invalid", struct.pack("<Q", 2**63) + b"{}{}"),
        ("header_length_invalid", struct.pack("<Q", 101_000_000) + b"{}{}"),
        ("header_length_invalid", GOOD[:20]),
        ("header_too_large", struct.pack("<Q", (2 << 20) + 1) + b"{" * ((2 << 20) + 2)),
        ("header_invalid", with_header(b"[1, 2]")),
        ("header_invalid", with_header(b"\xef\xbb\xbf{}")),
        ("header_invalid", with_header(b'{"a\xff": 1}')),
        ("header_invalid", with_header(b" {}")),
        ("header_invalid", with_header(b"{}\n")),
        ("header_invalid", with_header(b"{}" + b" " * 1030)),
        ("header_invalid", with_header(b'{"a": ' * 10_000 + b"1" + b"}" * 10_000)),
        ("header_invalid", with_header(b'{"a": {"x": {"y": {"z": {}}}}}')),
        ("header_invalid", with_header(b'{"a": NaN}')),
        ("header_invalid", with_header(b'{"a": {"dtype": "F32"}, "a": {}}')),
        ("metadata_invalid", file_of({"__metadata__": {"k": 1}, "a": entry(0, 8), "b": entry(8, 16)}, 16)),
        ("metadata_invalid", file_of({"__metadata__": ["k"]}, 16)),
        ("metadata_invalid", file_of({"__metadata__": {str(k): "" for k in range(65)}}, 16)),
        ("metadata_invalid", file_of({"__metadata__": {"k": "x" * 17_000}}, 16)),
        ("tensor_count_invalid", file_of({}, 0)),
        ("tensor_count_invalid", file_of({"a": entry(0, 8)}, 8)),
        ("tensor_count_invalid", file_of({f"t{k}": {} for k in range(16_385)}, 0)),
        ("tensor_entry_invalid", two({"dtype": "F32", "shape": [1, 2]})),
        ("tensor_entry_invalid", two({**entry(0, 8), "more": 1})),
        ("tensor_entry_invalid", file_of({"a": [], "b": []}, 0)),
        ("tensor_entry_invalid", two(entry(0, 8, [1.0, 2]))),
        ("tensor_entry_invalid", two(entry(0, 8, [True, 2]))),
        ("tensor_entry_invalid", two(entry(0, 8, "12"))),
        ("tensor_entry_invalid", two({**entry(0, 8), "data_offsets": [0, 8, 16]})),
        ("tensor_entry_invalid", two({**entry(0, 8), "data_offsets": [0, 8.0]})),
        ("dtype_unsupported", two(entry(0, 8, [1, 1], "F64"))),
        ("dtype_unsupported", two(entry(0, 8, [1, 2], "I32"))),
        ("dtype_unsupported", two(entry(0, 8, [1, 2], ["F32"]))),
        ("shape_invalid", two(entry(0, 8, []))),
        ("shape_invalid", two(entry(0, 8, [1, 1, 2]))),
        ("shape_invalid", two(entry(0, 0, [2**62, 0]))),
        ("shape_invalid", two(entry(0, 8, [-1, -2]))),
        ("shape_invalid", two(entry(0, 8, [2**32, 2**32]))),
        ("size_overflow", two(entry(0, 8, [2**20, 2**20]))),
        ("offset_mismatch", two(entry(0, 8, [1, 3]))),
        ("offset_mismatch", two(entry(-8, 0, [1, 2]))),
        ("offset_mismatch", two({**entry(0, 8), "data_offsets": [8, 0]})),
        ("offsets_overlap", two(entry(0, 8), entry(4, 12))),
        ("offsets_overlap", two(entry(0, 8), entry(0, 8))),
        ("offsets_gap", two(entry(4, 8))),
        ("offsets_gap", two(entry(0, 4))),
        ("size_mismatch", two(entry(0, 8), n_data=15)),
        ("size_mismatch", two(entry(0, 8), entry(8, 4096))),
        ("trailing_data", two(entry(0, 8), n_data=17)),
    ],
)
def test_an_unsound_file_is_refused_with_its_own_code(code: str, data: bytes) -> None:
    began = time.perf_counter()
    assert code_of(data) == code
    assert time.perf_counter() - began < 2


def test_a_file_beyond_two_gibibytes_is_refused_by_its_size_alone() -> None:
    with pytest.raises(AdapterRejected) as caught:
        read_header(BytesIO(GOOD), (2 << 30) + 1)
    assert caught.value.code == "adapter_too_large"


@pytest.mark.parametrize("length", [640, 896, 1152, 1408])
def test_a_header_whose_length_looks_like_the_start_of_a_pickle_is_still_read(length: int) -> None:
    text = json.dumps({"a": entry(0, 8), "b": entry(8, 16)}).encode()
    data = struct.pack("<Q", length) + text[:-1].ljust(length - 1) + b"}" + bytes(16)
    assert data[0] == 0x80
    assert len(parse(data).tensors) == 2


def test_a_pickle_behind_a_plausible_length_reaches_nothing_but_the_strict_parser() -> None:
    assert code_of(struct.pack("<Q", 0x0280) + b"{" + b"\x80\x04cos\nsystem\n" * 60) == "header_invalid"


def test_a_file_cut_while_it_is_read_is_refused() -> None:
    with pytest.raises(AdapterRejected) as caught:
        read_header(BytesIO(GOOD[:40]), len(GOOD))
    assert caught.value.code == "size_mismatch"


@given(st.binary(max_size=400))
@settings(max_examples=300)
def test_random_bytes_raise_nothing_but_a_rejection(data: bytes) -> None:
    _parse_or_reject(data)


@given(st.binary(max_size=300), st.integers(0, 400))
@settings(max_examples=300)
def test_random_headers_raise_nothing_but_a_rejection(header: bytes, n_data: int) -> None:
    _parse_or_reject(struct.pack("<Q", len(header)) + header + bytes(n_data))


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
ENTRIES = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F16", "BF16", "F32", "I8"]) | JSON_VALUES,
        "shape": st.lists(st.integers(-1, 5), max_size=3) | JSON_VALUES,
        "data_offsets": st.lists(st.integers(-4, 40), min_size=2, max_size=2) | JSON_VALUES,
    }
)


@given(
    st.dictionaries(st.text(max_size=6) | st.just("__metadata__"), ENTRIES | JSON_VALUES, max_size=4),
    st.integers(0, 80),
)
@settings(max_examples=300)
def test_random_entries_raise_nothing_but_a_rejection(entries: dict[str, Any], n_data: int) -> None:
    _parse_or_reject(with_header(json.dumps(entries).encode(), bytes(n_data)))


@given(st.integers(0, len(GOOD) - 1), st.integers(0, 255))
@settings(max_examples=300)
def test_a_changed_byte_is_read_as_the_library_reads_it_or_refused(position: int, value: int) -> None:
    data = bytearray(GOOD)
    data[position] = value
    header = _parse_or_reject(bytes(data))
    if header is not None:
        theirs = safetensors.numpy.load(bytes(data))
        assert {tensor.name: tensor.shape for tensor in header.tensors} == {n: a.shape for n, a in theirs.items()}


def _parse_or_reject(data: bytes) -> Header | None:
    try:
        header = parse(data)
    except AdapterRejected:
        return None
    covered = sum(tensor.end - tensor.begin for tensor in header.tensors)
    assert header.data_begin + covered == len(data)
    return header
