"""`lorikeet adapters push` of what PEFT itself saved, and of what must not be served."""

from __future__ import annotations

import base64
import hashlib
import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import httpx
import peft
import pytest
import safetensors.torch
import torch
import transformers

from tests.support.running_lorikeet import RunningLorikeet

pytestmark = pytest.mark.slow

PROMPT = [{"role": "user", "content": "How many legs has a spider?"}]
# The engine serves in bf16 where the CPU has it, the oracle is float32: a lead that bf16's rounding (a sixteenth at
# these logits, half as much again over 30 layers) does not take away.
SMALLEST_LEAD = 1.0


@pytest.fixture(scope="module")
def peft_dir(embedded_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained adapter that changes the answers, saved by PEFT."""
    return save_adapter(embedded_model_dir, tmp_path_factory.mktemp("peft"))


def save_adapter(model_dir: Path, folder: Path) -> Path:
    torch.manual_seed(11)
    base = transformers.AutoModelForCausalLM.from_pretrained(str(model_dir), dtype=torch.float32)
    config = peft.LoraConfig(r=6, lora_alpha=12, use_rslora=True, target_modules=["q_proj", "o_proj", "down_proj"])
    model = peft.get_peft_model(base, config)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.08)
    model.save_pretrained(str(folder))
    return folder


def test_a_directory_that_peft_saved_ends_ready_and_answers_as_peft_does(
    lorikeet: RunningLorikeet, peft_dir: Path, embedded_model_dir: Path
) -> None:
    pushed = lorikeet.cli("adapters", "push", str(peft_dir), "--name", "mine", key=lorikeet.key("orchard"))
    assert pushed.returncode == 0, pushed.stderr
    assert "mine:1 is ready: rank 6" in pushed.stderr
    assert "uploading mine: 3.1 of 3.1 MiB" in pushed.stderr, "progress is shown"
    answer = httpx.post(
        f"{lorikeet.demo['api']}/v1/chat/completions",
        headers={"Authorization": f"Bearer {lorikeet.key('orchard')}"},
        json={"model": "mine", "messages": PROMPT, "temperature": 0, "max_tokens": 4},
        timeout=60,
    ).json()["choices"][0]["message"]["content"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(embedded_model_dir))
    base = transformers.AutoModelForCausalLM.from_pretrained(str(embedded_model_dir), dtype=torch.float32)
    ids = tokenizer.apply_chat_template(PROMPT, add_generation_prompt=True, return_tensors="pt")["input_ids"]
    model = peft.PeftModel.from_pretrained(base, str(peft_dir))
    with torch.inference_mode():
        made = model.generate(
            input_ids=ids,
            max_new_tokens=4,
            do_sample=False,
            pad_token_id=2,
            output_logits=True,
            return_dict_in_generate=True,
        )
        with model.disable_adapter():
            plain = model.generate(input_ids=ids, max_new_tokens=4, do_sample=False, pad_token_id=2)
    best = torch.stack(made.logits).topk(2).values
    assert (best[..., 0] - best[..., 1]).min() >= SMALLEST_LEAD
    assert not torch.equal(made.sequences, plain), "the adapter changes the answer"
    assert answer == tokenizer.decode(made.sequences[0, ids.shape[1] :], skip_special_tokens=True)


def test_the_same_content_again_is_the_version_that_is_there(lorikeet: RunningLorikeet, peft_dir: Path) -> None:
    arguments = ("adapters", "push", str(peft_dir), "--name", "twice", "--json")
    first, second = (lorikeet.cli(*arguments, key=lorikeet.key("orchard")) for _ in range(2))
    assert first.returncode == second.returncode == 0
    assert json.loads(first.stdout)["id"] == json.loads(second.stdout)["id"]
    shown = json.loads(lorikeet.cli("adapters", "show", "twice", "--json", key=lorikeet.key("orchard")).stdout)
    assert len(shown["versions"]) == 1


def change_config(folder: Path, **fields: object) -> None:
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def spoil_dora(folder: Path) -> None:
    change_config(folder, use_dora=True)


def spoil_saved_modules(folder: Path) -> None:
    change_config(folder, modules_to_save=["lm_head"])


def spoil_rank(folder: Path) -> None:
    change_config(folder, r=7)


def spoil_cut(folder: Path) -> None:
    weights = folder / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:5000])


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (spoil_saved_modules, "feature_unsupported"),
        (spoil_dora, "vector_mismatch"),
        (spoil_rank, "rank_mismatch"),
        (spoil_cut, "header_length_invalid"),
    ],
)
def test_an_adapter_that_cannot_be_served_exactly_ends_with_status_6_and_its_code(
    lorikeet: RunningLorikeet, peft_dir: Path, tmp_path: Path, spoil: Callable[[Path], None], code: str
) -> None:
    folder = tmp_path / "bad"
    shutil.copytree(peft_dir, folder)
    spoil(folder)
    pushed = lorikeet.cli("adapters", "push", str(folder), "--name", "bad", key=lorikeet.key("orchard"))
    assert pushed.returncode == 6, pushed.stderr
    assert code in pushed.stderr


def upload(lorikeet: RunningLorikeet, name: str, filename: str, data: bytes) -> str:
    """A raw tus upload, as a client that skips the local checks sends it."""
    headers = {"Authorization": f"Bearer {lorikeet.key('orchard')}", "Tus-Resumable": "1.0.0"}
    values = {"adapter": name, "filename": filename, "sha256": hashlib.sha256(data).hexdigest()}
    metadata = ",".join(f"{key} {base64.b64encode(value.encode()).decode()}" for key, value in values.items())
    created = httpx.post(
        f"{lorikeet.demo['api']}/v1/uploads",
        headers=headers | {"Upload-Length": str(len(data)), "Upload-Metadata": metadata},
    )
    assert created.status_code == 201, created.text
    location = created.headers["location"]
    sent = httpx.patch(
        httpx.URL(lorikeet.demo["api"]).join(location),
        headers=headers | {"Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"},
        content=data,
    )
    assert sent.status_code == 204, sent.text
    return str(location).rsplit("/", 1)[-1]


@pytest.mark.parametrize(
    ("kind", "code"), [("pickle", "unsupported_format"), ("other hidden size", "base_model_mismatch")]
)
def test_the_server_rejects_what_a_client_without_checks_sends(
    lorikeet: RunningLorikeet, peft_dir: Path, kind: str, code: str
) -> None:
    weights = (peft_dir / "adapter_model.safetensors").read_bytes()
    if kind == "pickle":
        weights = pickle.dumps({"weights": [1.0] * 1000})
    else:
        tensors = {
            f"base_model.model.model.layers.0.self_attn.q_proj.lora_{part}.weight": torch.ones(shape)
            for part, shape in (("A", (6, 512)), ("B", (512, 6)))
        }
        weights = safetensors.torch.save(tensors)
    config = (peft_dir / "adapter_config.json").read_bytes()
    files = {
        "adapter_config.json": upload(lorikeet, "raw", "adapter_config.json", config),
        "adapter_model.safetensors": upload(lorikeet, "raw", "adapter_model.safetensors", weights),
    }
    headers = {"Authorization": f"Bearer {lorikeet.key('orchard')}"}
    url = f"{lorikeet.demo['api']}/v1/adapters/raw/versions"
    sealed = httpx.post(url, headers=headers, json={"files": files})
    assert sealed.status_code == 202, sealed.text
    version = httpx.get(f"{url}/{sealed.json()['number']}", params={"wait": 30}, headers=headers, timeout=40).json()
    assert (version["state"], version["reject_code"]) == ("rejected", code)
    answer = httpx.post(
        f"{lorikeet.demo['api']}/v1/chat/completions",
        headers=headers,
        json={"model": f"raw:{version['number']}", "messages": PROMPT},
    )
    assert answer.status_code == 404
