"""A header that would become half a million objects is refused before it does: N-32, in 200 ms and 64 MiB."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from lorikeet_adapters.header import MAX_HEADER_BYTES

N_TENSORS = 500_000
# Read in a process of its own, so that nothing else takes its time: three times against the clock, once for memory.
PROGRAM = """
import sys, time, tracemalloc
from lorikeet_adapters.errors import AdapterRejected
from lorikeet_adapters.header import read_header

def code_of(path):
    with open(path, "rb") as file:
        try:
            read_header(file, file.seek(0, 2))
        except AdapterRejected as error:
            return error.code
    return "accepted"

best = 1e9
for _ in range(3):
    began = time.process_time()
    code_of(sys.argv[1])
    best = min(best, time.process_time() - began)
tracemalloc.start()
print(code_of(sys.argv[1]), best, tracemalloc.get_traced_memory()[1])
"""


def header_file(path: Path, header: bytes) -> Path:
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    return path


def refusal(path: Path) -> tuple[str, float, int]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, path], capture_output=True, text=True, check=True, timeout=120
    )
    code, seconds, peak = done.stdout.split()
    return code, float(seconds), int(peak)


EMPTY = '"#":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}'


def dense(piece: str, n_bytes: int = MAX_HEADER_BYTES) -> bytes:
    """A header of nearly so many bytes, by default the longest allowed, filled with different short members."""
    pieces: list[str] = []
    length = 64
    while length < n_bytes:
        pieces.append(piece.replace("#", f"{len(pieces):x}"))
        length += len(pieces[-1]) + 1
    return ("{" + ",".join(pieces) + "}").encode()


SMALL = json.dumps({f"{k:x}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for k in range(16_384)}).encode()
BOMBS = {
    "half a million empty tensors": ("header_too_large", dense(EMPTY, N_TENSORS * 64)),
    "as many empty tensors as fit": ("tensor_count_invalid", dense(EMPTY)),
    "as many names as fit": ("tensor_count_invalid", dense('"#":0')),
    "as many numbers as fit": ("tensor_count_invalid", b'{"a":[' + b"0," * (MAX_HEADER_BYTES // 2 - 8) + b"0]}"),
    "as many empty objects as fit": ("tensor_count_invalid", dense('"#":{}')),
    "one long name": ("tensor_count_invalid", b'{"' + b"x" * (MAX_HEADER_BYTES - 8) + b'":0}'),
    "a name of escapes": ("tensor_count_invalid", b'{"' + b"\\u00e9" * (MAX_HEADER_BYTES // 6 - 8) + b'":0}'),
    "names twice": ("header_invalid", b'{' + b'"a":0,' * 90_000 + b'"a":0}'),
    "as many lists as fit": ("tensor_count_invalid", b'{"a":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}"),
    "lists in a row": ("tensor_count_invalid", b'{"a":' + b"[]" * (MAX_HEADER_BYTES // 2 - 8) + b"}"),
    "lists in lists": ("header_invalid", b'{"a":' + b"[" * 60_000 + b"]" * 60_000 + b"}"),
    "a few lists in a row": ("header_invalid", b'{"a":' + b"[]" * 60_000 + b"}"),
    "the largest header without a fault of its own": ("shape_invalid", SMALL),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("bomb", BOMBS)
def test_n32_a_header_bomb_is_refused_in_200_ms_and_64_mib(bomb: str, tmp_path: Path) -> None:
    wanted, header = BOMBS[bomb]
    code, seconds, peak = refusal(header_file(tmp_path / "bomb", header))
    assert code == wanted
    assert peak < 64 << 20
    assert seconds < 0.2
