"""`lorikeet adapters certify` and `convert`: on this machine, without a server or a key."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lorikeet_platform.cli.commands.options import AsJson
from lorikeet_platform.cli.console import CommandFailed, ExitCode, print_json, print_table, say

FLOAT32_BYTES, HALF_BYTES = 4, 2

if TYPE_CHECKING:
    from lorikeet_adapters.certificate import Certificate
    from lorikeet_adapters.errors import AdapterRejected
    from lorikeet_platform.settings import Settings


def certify(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="What PEFT's save_pretrained wrote.")],
    model: Annotated[
        str | None, typer.Option("--model", help="Base model: a directory, package:NAME or a hub id [LORIKEET_MODEL].")
    ] = None,
    max_rank: Annotated[
        int | None, typer.Option("--max-rank", min=1, help="Largest rank that is served [LORIKEET_MAX_RANK].")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check an adapter as the server would and print its certificate, without a server.

    Exit status: 0 certified, 1 it could not be checked, 2 usage, 5 local files, 6 rejected.
    """
    from lorikeet_adapters.errors import AdapterRejected
    from lorikeet_adapters.sandbox.jail import JailBroken, JailUnavailable
    from lorikeet_engine.certification.process import CertifierBroken
    from lorikeet_platform.cli.commands.adapters.certificates import certificate_rows
    from lorikeet_platform.cli.configuration import load_settings

    settings = load_settings(model=model)
    try:
        certificate = _certificate_of(folder, settings, max_rank or settings.max_rank)
    except AdapterRejected as rejected:
        raise _refusal(rejected, as_json=as_json) from None
    except OSError as error:
        raise CommandFailed(ExitCode.LOCAL_FILES, f"{folder}: {error.strerror or error}") from None
    except (JailBroken, JailUnavailable, CertifierBroken) as error:
        raise CommandFailed(ExitCode.FAILED, f"{folder} could not be checked: {error}") from None
    if as_json:
        print_json(certificate.as_record())
        return
    for warning in certificate.warnings:
        say(f"warning: {warning}")
    print_table(("CERTIFICATE", str(folder)), certificate_rows(certificate.as_record()), empty="")


def convert(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="With adapter_model.bin or adapter_model.pt.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A directory to make, with safetensors.")],
) -> None:
    """Turn a pickled adapter into safetensors, in a process that can touch nothing else.

    A pickle is a program. Here it can only make tensors, but whether the tensors are what they are said to be is known
    to their author alone.

    Exit status: 0 converted, 1 the reader could not be confined or broke, 5 local files, 6 refused.
    """
    from lorikeet_adapters.errors import AdapterRejected
    from lorikeet_adapters.folder import read_folder
    from lorikeet_adapters.sandbox.converting import convert_pickle
    from lorikeet_adapters.sandbox.jail import JailBroken, JailUnavailable

    say("warning: a pickle is a program; convert only what comes from an author you trust")
    try:
        n_tensors = convert_pickle(folder, out)
        try:
            read_folder(out)
        except BaseException:
            shutil.rmtree(out, ignore_errors=True)  # it was made here, and is no adapter
            raise
    except AdapterRejected as rejected:
        raise _refusal(rejected, as_json=False) from None
    except OSError as error:
        raise CommandFailed(ExitCode.LOCAL_FILES, f"{error.filename or folder}: {error.strerror or error}") from None
    except (JailBroken, JailUnavailable) as error:
        raise CommandFailed(ExitCode.FAILED, f"{folder} could not be converted: {error}") from None
    say(f"{out} holds {n_tensors} tensors; to check them: lorikeet adapters certify {out}")


def _certificate_of(folder: Path, settings: Settings, max_rank: int) -> Certificate:
    """Everything that a validation job finds out, but for the engine's own answers."""
    import asyncio
    import tempfile
    import time
    from contextlib import closing

    from lorikeet_adapters.errors import AdapterRejected
    from lorikeet_adapters.files import CONFIG_FILE
    from lorikeet_adapters.folder import read_folder
    from lorikeet_adapters.sandbox.validating import validate_in_jail
    from lorikeet_engine.certification.certifying import certificate_of
    from lorikeet_engine.certification.measured import disturbances, failures
    from lorikeet_engine.certification.process import Certifier
    from lorikeet_engine.model_spec import load_model_spec
    from lorikeet_platform.cli.embedded.model import prepared_model

    content = read_folder(folder)
    for name in content.ignored:
        say(f"not part of the adapter: {name}")
    model_dir = asyncio.run(prepared_model(settings))
    table = load_model_spec(model_dir).module_table(settings.model_name)
    dtype = _serving_dtype(settings)
    certifier = Certifier(
        model_dir=model_dir,
        base_model_name=settings.model_name,
        max_rank=max_rank,
        memory_bytes=settings.validation.certificate_memory_bytes,
    )
    with tempfile.TemporaryDirectory() as work, closing(certifier):
        image = Path(work) / "image"
        files = {file.name: file.path.resolve() for file in content.files}
        record = validate_in_jail(files, table=table, max_rank=max_rank, image=image)
        measured = certifier.measure(folder=folder.resolve(), image=image, digest=record.digest, serving_dtype=dtype)
    if failed := failures(measured) + disturbances(measured):
        raise AdapterRejected.restored("certificate_failed", f"It is not served exactly: {'; '.join(failed)}.", None)
    return certificate_of(
        record,
        measured,
        base_model=settings.model_name,
        config_digest=next(file.sha256 for file in content.files if file.name == CONFIG_FILE),
        serving_bytes=record.serving_bytes(FLOAT32_BYTES if dtype == "float32" else HALF_BYTES),
        served_alike=None,
        made_at=int(time.time() * 1e6),
    )


def _serving_dtype(settings: Settings) -> str:
    """The number format that an engine with these settings would serve in."""
    from lorikeet_engine.certification.serving_format import serving_format
    from lorikeet_engine.errors import UnsupportedModel

    try:
        return serving_format(settings.engine.dtype, settings.engine.device)
    except UnsupportedModel as error:
        raise CommandFailed(ExitCode.USAGE, str(error)) from None


def _refusal(rejected: AdapterRejected, *, as_json: bool) -> CommandFailed:
    if as_json:
        print_json({"rejected": {"code": rejected.code, "message": rejected.message, "param": rejected.param}})
    return CommandFailed(ExitCode.REJECTED, f"{rejected.code}: {rejected.message}")
