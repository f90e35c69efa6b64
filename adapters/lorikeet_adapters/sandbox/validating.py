"""Is this an adapter? Asked of a jailed child, so that what the files are made of can do no harm here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from lorikeet_adapters.errors import quoted
from lorikeet_adapters.files import weight_files
from lorikeet_adapters.header import MAX_HEADER_BYTES
from lorikeet_adapters.modules import ModuleTable
from lorikeet_adapters.sandbox.confinement.limits import JailLimits
from lorikeet_adapters.sandbox.jail import Inmate, JailBroken, run_jailed
from lorikeet_adapters.sandbox.record import BadAnswer, ValidatedRecord, record_of

LIMITS: Final = JailLimits()
VALIDATOR: Final = ("-m", "lorikeet_adapters.sandbox")


def validate_in_jail(
    files: Mapping[str, Path], *, table: ModuleTable, max_rank: int, image: Path, limits: JailLimits = LIMITS
) -> ValidatedRecord:
    """Check the adapter in `files`, by the names they were uploaded under, and write its normalised file to `image`.

    Raises:
        AdapterRejected: with the first rule it breaks.
        JailBroken: the validator crashed or ran into a limit.
        JailUnavailable: this machine cannot confine a validator.
    """
    weights = weight_files(files)
    linears = {name: (linear.in_features, linear.out_features) for name, linear in table.linears.items()}
    fields = {name: getattr(table, name) for name in ("base_model", "n_layers", "norms", "has_default_targets")}
    inmate = Inmate(
        program=VALIDATOR,
        arguments={
            "table": {**fields, "linears": linears},
            "max_rank": max_rank,
        },
        files=files,
    )
    # The normalised file holds the weights and another header, no longer than two of theirs.
    most = sum(files[name].stat().st_size for name in weights) + 2 * MAX_HEADER_BYTES
    outcome = run_jailed(inmate, out=image, max_out_bytes=most, limits=limits)
    try:
        record = record_of(outcome.done, table=table, max_rank=max_rank)
        if record.digest != outcome.sha256:
            raise BadAnswer("digest")
    except BadAnswer as error:
        image.unlink(missing_ok=True)
        raise JailBroken(f"its answer is none: {quoted(str(error))}") from None
    return record
