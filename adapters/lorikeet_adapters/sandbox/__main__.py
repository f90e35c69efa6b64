"""`python -m lorikeet_adapters.sandbox`: the validator of one adapter, in a jail; `validating` starts it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from lorikeet_adapters.digest import write_normalised
from lorikeet_adapters.files import CONFIG_FILE, INDEX_FILE, weight_files
from lorikeet_adapters.manifest import GRAIN
from lorikeet_adapters.modules import Linear, ModuleTable
from lorikeet_adapters.sandbox.child import Task, run_child
from lorikeet_adapters.sandbox.record import ITEMSIZES
from lorikeet_adapters.validate import validate_adapter


def validate(task: Task) -> dict[str, Any]:
    """The record of the adapter in the task's files; its normalised file goes out."""
    weights = [task.files[name] for name in weight_files(task.files)]
    table = task.arguments["table"]
    linears = {module: Linear(*widths) for module, widths in table["linears"].items()}
    adapter = validate_adapter(
        config=task.files[CONFIG_FILE],
        weights=weights,
        index=task.files.get(INDEX_FILE),
        table=ModuleTable(
            base_model=table["base_model"],
            n_layers=table["n_layers"],
            linears=linears,
            norms=tuple(table["norms"]),
            has_default_targets=table["has_default_targets"],
        ),
        max_rank=task.arguments["max_rank"],
    )
    return {
        "digest": write_normalised(adapter, weights, task.out),
        "rank_max": adapter.rank_max,
        "modules": Counter(delta.module for delta in adapter.deltas),
        "ranks": Counter(str(delta.rank) for delta in adapter.deltas),
        "dtype": adapter.dtype,
        "tensor_count": adapter.tensor_count,
        "target_modules": adapter.target_modules,
        "config": adapter.config,
        "warnings": adapter.warnings,
        "n_grains": {str(size): adapter.serving_bytes(size) // (GRAIN * size) for size in ITEMSIZES},
    }


if __name__ == "__main__":
    run_child(validate)
