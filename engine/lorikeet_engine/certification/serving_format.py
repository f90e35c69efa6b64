"""Which number format an engine would serve in; for those who certify without one. Needs torch."""

from __future__ import annotations

from lorikeet_engine.execution.machine.device import resolve_device, resolve_dtype


def serving_format(dtype: str, device: str) -> str:
    """`dtype` as an engine on `device` would understand it: "bfloat16", "float16" or "float32".

    Raises:
        UnsupportedModel: it is not served on that device, or there is no such device.
    """
    return str(resolve_dtype(dtype, resolve_device(device))).removeprefix("torch.")
