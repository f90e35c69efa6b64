"""N-27 to N-29: the same slice from many sides at once, cut short, too long, or after the upload is over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from lorikeet_platform.context import PlatformContext
from tests.support.platform_parts import CONFIG, TUS, Uploader, checksum
from tests.support.upload_answers import stored

CONTENT = bytes(range(256)) * 16
N_THREADS = 8


def outcomes(calls: Sequence[Callable[[], Any]]) -> Counter[tuple[int, str]]:
    """Status and code of every call, made by several threads."""
    with ThreadPoolExecutor(N_THREADS) as pool:
        responses = list(pool.map(lambda call: call(), calls))
    return Counter(
        (response.status_code, response.json()["error"]["code"] if response.status_code >= 400 else "")
        for response in responses
    )


def test_n_28_a_slice_sent_a_hundred_times_at_once_is_stored_once(context: PlatformContext, uploader: Uploader) -> None:
    location = uploader.create(CONTENT).headers["location"]
    same = checksum("sha256", CONTENT[:1000])
    calls = [lambda: uploader.append(location, 0, CONTENT[:1000], upload_checksum=same)] * 100
    assert outcomes(calls) == {(204, ""): 1, (409, "offset_conflict"): 99}
    assert uploader.offset(location) == 1000
    assert stored(context, uploader.tenant, location) == CONTENT[:1000]
    assert len(list(context.store.entries("uploads/"))) == 1, "what came second was not left behind"


def test_n_28_other_bytes_at_the_same_place_at_once_are_one_clients_or_the_others(
    context: PlatformContext, uploader: Uploader
) -> None:
    location = uploader.create(CONTENT).headers["location"]
    calls = [partial(uploader.append, location, 0, bytes([number]) * 1000) for number in range(N_THREADS)]
    assert outcomes(calls) == {(204, ""): 1, (409, "offset_conflict"): N_THREADS - 1}
    content = stored(context, uploader.tenant, location)
    assert content == content[:1] * 1000


def test_n_28_a_slice_after_sealing_or_after_the_end_is_refused(uploader: Uploader) -> None:
    sealed = {name: uploader.whole(CONTENT, filename=name) for name in (CONFIG, "adapter_model.safetensors")}
    assert uploader.seal_uploads(sealed).status_code == 202
    response = uploader.append(f"/v1/uploads/{sealed[CONFIG]}", len(CONTENT), b"")
    assert (response.status_code, response.json()["error"]["code"]) == (409, "upload_sealed")
    ended = uploader.create(CONTENT).headers["location"]
    uploader.client.delete(ended, headers={**uploader.tenant.auth, **TUS})
    assert uploader.append(ended, 0, CONTENT).status_code == 404


def test_n_29_two_clients_in_one_upload_complete_it_between_them(context: PlatformContext, uploader: Uploader) -> None:
    location = uploader.create(CONTENT).headers["location"]

    def send_rest(_number: int) -> int:
        n_sent = 0
        while (at := uploader.offset(location)) < len(CONTENT):
            n_sent += uploader.append(location, at, CONTENT[at : at + 100]).status_code == 204
        return n_sent

    with ThreadPoolExecutor(2) as pool:
        sent = list(pool.map(send_rest, range(2)))
    assert sum(sent) == -(-len(CONTENT) // 100)
    assert stored(context, uploader.tenant, location) == CONTENT


def test_n_29_sealed_twenty_times_while_the_last_slice_arrives_it_is_one_version_or_none_yet(
    context: PlatformContext, uploader: Uploader
) -> None:
    files = {CONFIG: uploader.whole(CONTENT, filename=CONFIG)}
    location = uploader.create(CONTENT).headers["location"]
    files["adapter_model.safetensors"] = location.rpartition("/")[2]
    uploader.append(location, 0, CONTENT[:-1])
    calls: list[Callable[[], Any]] = [lambda: uploader.seal_uploads(files)] * 20
    calls.insert(10, lambda: uploader.append(location, len(CONTENT) - 1, CONTENT[-1:]))
    found = outcomes(calls)
    assert set(found) <= {(202, ""), (200, ""), (204, ""), (409, "upload_incomplete")}
    assert found[204, ""] == 1
    numbers = {uploader.seal_uploads(files).json()["number"] for _ in range(2)}
    assert numbers == {1}
    assert stored(context, uploader.tenant, location) == CONTENT


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br"])
def test_n_27_an_encoded_slice_is_refused(uploader: Uploader, encoding: str) -> None:
    location = uploader.create(CONTENT).headers["location"]
    response = uploader.append(location, 0, CONTENT, content_encoding=encoding)
    assert (response.status_code, response.json()["error"]["code"]) == (415, "unsupported_media_type")
    assert uploader.offset(location) == 0


@pytest.mark.parametrize("offset", ["-1", "1000000000", str(2**63), "0x10", "1.5"])
def test_n_27_an_impossible_offset_is_refused(uploader: Uploader, offset: str) -> None:
    location = uploader.create(CONTENT).headers["location"]
    assert uploader.append(location, 0, CONTENT, upload_offset=offset).status_code in (400, 409)
    assert uploader.offset(location) == 0
