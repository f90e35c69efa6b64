"""The validation job on real files: what becomes ready, what is rejected, and where aliases go."""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from lorikeet_adapters.source import AdapterSource
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.tables import Alias, Job, Upload, UploadSlice
from lorikeet_platform.jobs.runner import JobRunner
from lorikeet_platform.registry.files import file_key
from tests.platform.registry.work.conftest import Push, RunNext
from tests.support.lora_files import tensors, write_files
from tests.support.platform_parts import CONFIG, WEIGHTS, FakeClock, Tenant, Uploader
from tests.support.worker_tools import ScriptedTools


def shown(uploader: Uploader, number: int = 1) -> dict[str, Any]:
    path = f"/v1/adapters/pirate/versions/{number}"
    version: dict[str, Any] = uploader.client.get(path, headers=uploader.tenant.auth).json()
    return version


def aliases(uploader: Uploader) -> dict[str, list[int]]:
    adapter = uploader.client.get("/v1/adapters/pirate", headers=uploader.tenant.auth).json()
    return {alias["alias"]: [target["version"] for target in alias["targets"]] for alias in adapter["aliases"]}


def live(uploader: Uploader) -> int:
    (number,) = aliases(uploader)["live"]
    return number


def test_a_good_adapter_becomes_ready_and_live(
    context: PlatformContext, run_next: RunNext, uploader: Uploader, files: tuple[bytes, bytes]
) -> None:
    uploader.seal(*files)
    run_next()
    version = shown(uploader)
    assert (version["state"], version["rank"], version["reject_code"]) == ("ready", 4, None)
    assert version["target_modules"] == ["self_attn.q_proj", "self_attn.v_proj"]
    assert version["serving_bytes"] > 0
    assert version["ready_at"] >= version["created_at"]
    assert aliases(uploader) == {"live": [1]}
    normalised = AdapterSource(context.store).read_normalised(uploader.tenant.id, version["digest"])
    assert hashlib.sha256(normalised).hexdigest() == version["digest"]
    for content in files:
        assert context.store.read(file_key(uploader.tenant.id, hashlib.sha256(content).hexdigest())) == content
    assert list(context.store.entries("uploads/")) == []
    assert list(context.settings.temporary_dir.iterdir()) == []


def test_many_slices_make_one_file(
    context: PlatformContext, run_next: RunNext, uploader: Uploader, files: tuple[bytes, bytes]
) -> None:
    weights = uploader.create(files[1]).headers["location"]
    for begin in range(0, len(files[1]), 700):
        uploader.append(weights, begin, files[1][begin : begin + 700])
    uploads = {CONFIG: uploader.whole(files[0], filename=CONFIG), WEIGHTS: weights.rpartition("/")[2]}
    uploader.seal_uploads(uploads)
    with context.db.platform.read() as work:
        assert (work.scalar(select(func.count()).select_from(UploadSlice)) or 0) > 5
    run_next()
    assert shown(uploader)["state"] == "ready"


def test_bytes_that_are_not_the_declared_file_are_rejected(
    context: PlatformContext, run_next: RunNext, uploader: Uploader, files: tuple[bytes, bytes]
) -> None:
    created = uploader.create(files[1], sha256="0" * 64)
    uploader.append(created.headers["location"], 0, files[1])
    uploads = {
        CONFIG: uploader.whole(files[0], filename=CONFIG),
        WEIGHTS: created.headers["location"].rpartition("/")[2],
    }
    uploader.seal_uploads(uploads)
    run_next()
    version = shown(uploader)
    assert (version["state"], version["reject_code"]) == ("rejected", "checksum_mismatch")
    assert WEIGHTS in version["reject_detail"]


@pytest.mark.parametrize(
    ("weights", "changes", "code"),
    [
        (pickle.dumps({"lora_A": [0.0] * 64}), {}, "unsupported_format"),
        (None, {"r": 99}, "rank_too_large"),
        (None, {"modules_to_save": ["lm_head"]}, "feature_unsupported"),
    ],
)
def test_a_bad_adapter_is_rejected_by_name_and_leaves_nothing(
    context: PlatformContext,
    run_next: RunNext,
    uploader: Uploader,
    tmp_path: Path,
    weights: bytes | None,
    changes: dict[str, Any],
    code: str,
) -> None:
    bad = write_files(tmp_path / "bad", weights, **changes)
    uploader.seal(bad.config.read_bytes(), bad.weights.read_bytes())
    run_next()
    version = shown(uploader)
    assert version["state"] == "rejected"
    assert version["reject_code"] == code
    assert version["reject_detail"]
    assert list(context.store.entries("")) == []
    with context.db.platform.read() as work:
        assert work.scalars(select(Alias)).all() == []
        assert {upload.state for upload in work.scalars(select(Upload))} == {"consumed"}


def test_live_moves_only_on_request(context: PlatformContext, push: Push, uploader: Uploader, tmp_path: Path) -> None:
    push(1)
    push(2)
    assert live(uploader) == 1
    push(3, alias="live")
    assert live(uploader) == 3
    content = tmp_path / "pirate-2"
    existing = uploader.seal(
        (content / CONFIG).read_bytes(), (content / WEIGHTS).read_bytes(), alias="live"
    )  # no new version, but the alias moves
    assert (existing.status_code, live(uploader)) == (200, 2)


def test_a_live_that_was_removed_stays_away_until_it_is_asked_for(push: Push, uploader: Uploader) -> None:
    push(1)
    address = "/v1/adapters/pirate/aliases/live"
    assert uploader.client.request("DELETE", address, headers=uploader.tenant.auth).status_code == 204
    push(2)
    assert aliases(uploader) == {}
    push(3, alias="live")
    assert aliases(uploader) == {"live": [3]}


def test_another_alias_than_live_is_set_when_the_version_is_ready(push: Push, uploader: Uploader) -> None:
    push(1)
    push(2, alias="canary")
    assert aliases(uploader) == {"live": [1], "canary": [2]}


def test_a_late_verdict_takes_live_back_from_no_newer_version(
    context: PlatformContext, runner: JobRunner, uploader: Uploader, tmp_path: Path
) -> None:
    contents = [write_files(tmp_path / str(seed), tensors(seed=seed)) for seed in (1, 2)]
    for content in contents:
        uploader.seal(content.config.read_bytes(), content.weights.read_bytes(), alias="live")
    with context.db.platform.read() as work:
        first, second = work.scalars(select(Job.id).order_by(Job.id)).all()

    assert runner.run(second)
    assert live(uploader) == 2
    assert runner.run(first)
    assert (shown(uploader, 1)["state"], live(uploader)) == ("ready", 2)
    uploader.seal(contents[0].config.read_bytes(), contents[0].weights.read_bytes(), alias="live")
    assert live(uploader) == 1  # asked for now


def test_other_files_of_the_same_adapter_share_one_image_and_say_so(
    context: PlatformContext, run_next: RunNext, uploader: Uploader, tmp_path: Path
) -> None:
    for number, inference_mode in enumerate([False, True]):
        content = write_files(tmp_path / str(number), inference_mode=inference_mode)
        uploader.seal(content.config.read_bytes(), content.weights.read_bytes())
        run_next()
    first, second = shown(uploader, 1), shown(uploader, 2)
    assert first["digest"] == second["digest"]
    assert second["warnings"][-1] == "the same content as version 1"
    assert len(list(context.store.entries("images/"))) == 1


def test_two_tenants_equal_files_are_two_images(
    context: PlatformContext, run_next: RunNext, uploader: Uploader, orchard: Tenant, files: tuple[bytes, bytes]
) -> None:
    uploader.seal(*files)
    Uploader(uploader.client, orchard).seal(*files)
    run_next()
    run_next()
    assert len(list(context.store.entries("images/"))) == 2


def test_a_version_is_ready_with_a_certificate_of_what_was_measured(
    run_next: RunNext, uploader: Uploader, files: tuple[bytes, bytes], tools: ScriptedTools
) -> None:
    tools.certifier.will_say(effect=0.5, warnings=("it hardly changes anything",))
    uploader.seal(*files)
    assert run_next()
    version = shown(uploader)
    certificate = version["certificate"]
    assert certificate["config_digest"] == hashlib.sha256(files[0]).hexdigest()
    assert certificate["tensor_digest"] == version["digest"] == tools.certifier.seen[0]
    assert (certificate["modules"], certificate["ranks"]) == ({"self_attn.q_proj": 2, "self_attn.v_proj": 2}, {"4": 4})
    assert (certificate["effect"], certificate["oracle"], certificate["served_alike"]) == (0.5, "peft", True)
    assert certificate["serving_bytes"] == version["serving_bytes"]
    assert "it hardly changes anything" in version["warnings"]
    assert (certificate["validator"], certificate["made_at"]) == ("1", version["ready_at"])


def test_serving_bytes_are_those_of_the_engine_s_own_type(push: Push, tools: ScriptedTools) -> None:
    whole = push(1).serving_bytes
    tools.engine.dtype = "bfloat16"
    half = push(2).serving_bytes
    assert whole is not None
    assert half is not None
    assert 0.5 <= half / whole < 0.6


def test_an_adapter_that_does_not_compute_as_it_should_is_rejected_with_the_figures(
    run_next: RunNext,
    uploader: Uploader,
    files: tuple[bytes, bytes],
    tools: ScriptedTools,
) -> None:
    tools.certifier.will_say(max_logit_difference=3.5)
    uploader.seal(*files)
    assert run_next()
    version = shown(uploader)
    assert (version["state"], version["reject_code"]) == ("rejected", "certificate_failed")
    assert "3.5" in version["reject_detail"]
    assert tools.engine.named("answers") == []


@pytest.mark.parametrize("changes", [{"neighbours_unchanged": False}, {"neighbour_max_logit_difference": 0.7}])
def test_what_happens_to_neighbours_in_a_mixed_batch_is_our_fault_and_measured_again(
    run_next: RunNext,
    uploader: Uploader,
    files: tuple[bytes, bytes],
    tools: ScriptedTools,
    changes: dict[str, Any],
    clock: FakeClock,
) -> None:
    sound = tools.certifier.measured
    tools.certifier.will_say(**changes)
    uploader.seal(*files)
    assert not run_next()
    assert shown(uploader)["state"] == "validating"
    assert tools.engine.named("answers") == []
    tools.certifier.measured = sound
    clock.advance(60)
    assert run_next()
    assert shown(uploader)["state"] == "ready"


def test_v22_the_engine_is_asked_with_two_prompts_alone_and_then_with_all_at_once(
    push: Push, tools: ScriptedTools
) -> None:
    version = push()
    assert [arguments[1] for arguments in tools.engine.named("answers")] == [1, 1, 1, 1, 4]
    assert tools.engine.named("warm")[0] == [version.tenant_id, version.digest]


def test_v21_an_adapter_that_the_engine_can_never_load_is_rejected_as_too_large(
    run_next: RunNext, uploader: Uploader, files: tuple[bytes, bytes], tools: ScriptedTools
) -> None:
    tools.engine.room = 1000
    uploader.seal(*files)
    assert run_next()
    version = shown(uploader)
    assert (version["state"], version["reject_code"]) == ("rejected", "adapter_too_large")
    assert "1000" in version["reject_detail"]


def test_a_refused_file_reaches_neither_certifier_nor_engine(
    run_next: RunNext, uploader: Uploader, files: tuple[bytes, bytes], tools: ScriptedTools
) -> None:
    uploader.seal(files[0], pickle.dumps({"lora_A": [0.0] * 64}))
    assert run_next()
    assert shown(uploader)["reject_code"] == "unsupported_format"
    assert (tools.certifier.seen, tools.engine.calls) == ([], [])


def test_a_rejected_version_is_kept_for_thirty_days(run_next: RunNext, uploader: Uploader) -> None:
    uploader.seal(b"{}", b"\x80\x04pickle")
    assert run_next()
    version = shown(uploader)
    assert version["purge_after"] - version["created_at"] == 30 * 24 * 3600
