"""Which files an adapter consists of, by name: the configuration, and the weights in one file or in indexed shards.

adapter_config.json
adapter_model.safetensors                       one file, or
adapter_model.safetensors.index.json            the index of
adapter_model-00001-of-00002.safetensors …      the shards
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from lorikeet_adapters.errors import AdapterRejected, listed, quoted

CONFIG_FILE: Final = "adapter_config.json"
WEIGHTS_FILE: Final = "adapter_model.safetensors"
INDEX_FILE: Final = f"{WEIGHTS_FILE}.index.json"
MAX_SHARDS: Final = 64
MAX_INDEX_BYTES: Final = 4 << 20

_SHARD: Final = re.compile(r"adapter_model-([0-9]{5})-of-([0-9]{5})\.safetensors")


def is_adapter_file(name: str) -> bool:
    """Whether a file of this name can be part of an adapter."""
    return name in (CONFIG_FILE, WEIGHTS_FILE, INDEX_FILE) or _SHARD.fullmatch(name) is not None


def weight_files(names: Collection[str]) -> tuple[str, ...]:
    """The files with weights among the `names` of an adapter's files, in order.

    Raises:
        AdapterRejected: invalid_file_set, when the names are not exactly those of one adapter.
    """
    unknown = sorted(name for name in names if not is_adapter_file(name))
    if unknown:
        raise _rejected(quoted(unknown[0]).strip("'"), "a file that is no part of an adapter", "no other files")
    if CONFIG_FILE not in names:
        raise _rejected(CONFIG_FILE, "no such file", "the file PEFT writes beside the weights")
    shards = sorted(name for name in names if _SHARD.fullmatch(name))
    if not shards and INDEX_FILE not in names:
        if WEIGHTS_FILE not in names:
            raise _rejected(WEIGHTS_FILE, "no such file", "the weights as PEFT saves them")
        return (WEIGHTS_FILE,)
    if WEIGHTS_FILE in names:
        raise _rejected(WEIGHTS_FILE, "the weights in one file and in shards", "one of the two")
    if INDEX_FILE not in names:
        raise _rejected(INDEX_FILE, "no such file", "the index that is written beside the shards")
    _check_complete(shards)
    return tuple(shards)


def shard_names(count: int) -> tuple[str, ...]:
    """The names of `count` shards, in order."""
    return tuple(f"adapter_model-{number:05}-of-{count:05}.safetensors" for number in range(1, count + 1))


def _check_complete(shards: list[str]) -> None:
    count = int(shards[0][-17:-12]) if shards else 0
    if not 1 <= count <= MAX_SHARDS or shards != list(shard_names(count)):
        allowed = f"all shards of 1 to {MAX_SHARDS}, numbered from 1"
        raise _rejected(INDEX_FILE, f"the shards {listed(shards)}", allowed)


def _rejected(subject: str, found: str, allowed: str) -> AdapterRejected:
    return AdapterRejected("invalid_file_set", subject=subject, found=found, allowed=allowed)
