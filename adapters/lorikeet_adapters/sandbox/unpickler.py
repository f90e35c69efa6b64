"""`python -m lorikeet_adapters.sandbox.unpickler`: a pickle as safetensors, in a jail; `converting` starts it.

torch's restricted unpickler makes tensors and plain containers and refuses whatever else a pickle asks for. It is the
second line: the first is that nothing that ran here could reach anything.
"""

from __future__ import annotations

import re
from io import BytesIO
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors.torch import save

from lorikeet_adapters.errors import AdapterRejected, quoted
from lorikeet_adapters.sandbox.child import Task, run_child

_WANTED = re.compile(r"GLOBAL ([\w.]+)")  # in torch's sentence about what it did not make
ALLOWED = "a dictionary of tensors by name, as PEFT saves it"


def convert(task: Task) -> dict[str, Any]:
    """The tensors of the one file, out as safetensors."""
    ((name, file),) = task.files.items()
    state = _load(file.open(), name)
    if not isinstance(state, dict) or not state:
        raise _refused(name, f"{type(state).__name__}, not tensors")
    for key, tensor in state.items():
        if not isinstance(key, str) or not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided:
            raise _refused(name, f"{quoted(key)}: {type(tensor).__name__}")
    # Tensors of a pickle may lie in each other's memory; in the new file each has its own.
    own = {key: tensor.detach().clone(memory_format=torch.contiguous_format) for key, tensor in state.items()}
    task.out.write(save(own, metadata={"format": "pt"}))
    return {"n_tensors": len(own)}


def _load(file: Any, name: str) -> object:
    try:
        state: object = torch.load(file, map_location="cpu", weights_only=True)
    except (
        UnpicklingError,
        EOFError,
        ValueError,
        KeyError,
        AttributeError,
        IndexError,
        TypeError,
        RuntimeError,
    ) as error:
        wanted = _WANTED.search(str(error))
        found = f"a pickle that asks for {quoted(wanted[1])}" if wanted else f"no such file ({type(error).__name__})"
        raise _refused(name, found) from None
    return state


def _warm_up() -> None:
    """Both of torch's formats once, for what they import when first used: nothing can be imported in the jail."""
    for is_zip in (True, False):
        buffer = BytesIO()
        tensors = {str(kind): torch.zeros(2, dtype=kind) for kind in (torch.float32, torch.float16, torch.bfloat16)}
        torch.save(tensors, buffer, _use_new_zipfile_serialization=is_zip)
        save(torch.load(BytesIO(buffer.getvalue()), map_location="cpu", weights_only=True))


def _refused(name: str, found: str) -> AdapterRejected:
    return AdapterRejected("unsupported_format", subject=name, found=found, allowed=ALLOWED)


if __name__ == "__main__":
    _warm_up()
    run_child(convert)
