"""What is asked of a server, as a file or the command's options describe it, in the words of simulated workloads."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

import yaml

from lorikeet_engine.experiments.record import SetupValue
from lorikeet_engine.simulation.workload.description import Aborts, SharedPrefixes
from lorikeet_engine.simulation.workload.distributions import Arrivals, Lengths
from lorikeet_engine.simulation.workload.strict_records import DescriptionError, read_record
from lorikeet_platform.tools.bench.load.address import fits_header


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedAdapters:
    """Models to ask for in place of the target's, the most popular first.

    Attributes:
        zipf: exponent of their popularity; 0 = all alike.
        base_share: how many of the requests ask for the target's model all the same.
    """

    names: tuple[str, ...]
    zipf: float = 1.0
    base_share: float = 0.0

    def __post_init__(self) -> None:
        if not self.names or len(set(self.names)) < len(self.names) or not all(self.names):
            raise DescriptionError("adapters need names, each once")
        if not math.isfinite(self.zipf):
            raise DescriptionError(f"zipf must be a finite number, not {self.zipf:g}")
        if not 0 <= self.base_share <= 1:
            raise DescriptionError("base_share must lie in 0 … 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantKey:
    """Whose key a trace's tenant asks with: the environment's variable that holds it, or the file."""

    tenant: str
    api_key_env: str = ""
    api_key_file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadGroup:
    """Requests of one kind, and of one key.

    Attributes:
        output: lengths that are asked for as `max_tokens`; answers may end sooner, unless the load ignores their end.
        api_key_env, api_key_file: where its key is; without either the target's.
    """

    name: str
    arrivals: Arrivals
    prompt: Lengths
    output: Lengths
    adapters: NamedAdapters | None = None
    shared_prefixes: SharedPrefixes | None = None
    aborts: Aborts | None = None
    api_key_env: str = ""
    api_key_file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One load test. It ends after `duration_s` seconds or `n_requests` requests, whichever comes first, and drains.

    Attributes:
        tenants: who asks what; or else
        trace: a file of recorded requests, one JSON object a line, beside the description, with the keys of its
            tenants in `keys`. A trace may end by itself.
    """

    name: str
    seed: int = 1
    duration_s: float = 0.0
    n_requests: int = 0
    tenants: tuple[LoadGroup, ...] = ()
    trace: str = ""
    keys: tuple[TenantKey, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.tenants) == bool(self.trace):
            raise DescriptionError("a load needs tenants or a trace, and not both")
        if self.tenants and self.duration_s <= 0 and self.n_requests <= 0:
            raise DescriptionError("a load needs a duration_s or an n_requests, or it would never end")
        if not math.isfinite(self.duration_s):
            raise DescriptionError(f"duration_s must be a finite number of seconds, not {self.duration_s:g}")
        if min(self.duration_s, self.n_requests) < 0:
            raise DescriptionError("duration_s and n_requests must not be negative")
        if self.keys and self.tenants:
            raise DescriptionError("keys are a trace's; tenants have their own api_key_env or api_key_file")
        if len({group.name for group in self.tenants}) < len(self.tenants):
            raise DescriptionError("two groups of tenants have the same name")

    def setup(self) -> dict[str, SetupValue]:
        """What a record says of it: lengths and arrivals of the only group, where there is one."""
        told: dict[str, SetupValue] = {"seed": self.seed}
        if self.trace:
            return told | {"trace": Path(self.trace).name}
        if len(self.tenants) > 1:
            return told | {"tenants": len(self.tenants)}
        (group,) = self.tenants
        told |= {"prompt_tokens": _length(group.prompt), "output_tokens": _length(group.output)}
        if group.arrivals.kind == "closed":
            told["concurrency"] = group.arrivals.concurrency
        else:
            told |= {"arrivals": group.arrivals.kind, "requests_per_s": group.arrivals.rate}
        if group.shared_prefixes:
            told["shared_tokens"] = group.shared_prefixes.tokens
        if group.adapters:
            told["adapters"] = len(group.adapters.names)
        return told


def load_description(path: Path) -> Load:
    """Raises DescriptionError: there is no such file, or it does not describe a load."""
    try:
        parsed = yaml.safe_load(path.read_text())
    except OSError as error:
        raise DescriptionError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, yaml.YAMLError) as error:
        raise DescriptionError(f"{path.name} cannot be read: {error}") from None
    if isinstance(parsed, dict) and isinstance(parsed.get("trace"), str):
        parsed["trace"] = str(path.parent / parsed["trace"])
    return read_record(Load, parsed, "")


def key_of(owner: LoadGroup | TenantKey, default: str) -> str:
    """The secret itself. Raises DescriptionError for one that is not where the description says."""
    name = owner.name if isinstance(owner, LoadGroup) else owner.tenant
    if owner.api_key_env and owner.api_key_file:
        raise DescriptionError(f"{name}: api_key_env and api_key_file contradict each other; give one")
    if owner.api_key_env:
        if not os.environ.get(owner.api_key_env):
            raise DescriptionError(f"{name}: the environment has no {owner.api_key_env}")
        return _fit_for_header(name, os.environ[owner.api_key_env].strip())
    if owner.api_key_file:
        try:
            return _fit_for_header(name, Path(owner.api_key_file).read_text(encoding="ascii").strip())
        except (OSError, UnicodeDecodeError):
            raise DescriptionError(f"{name}: cannot read the key in {owner.api_key_file}") from None
    return default


def _fit_for_header(name: str, key: str) -> str:
    if not fits_header(key):
        raise DescriptionError(f"{name}: its key holds characters that no key has")
    return key


def _length(lengths: Lengths) -> SetupValue:
    """A number where every draw gives that one."""
    match lengths.kind:
        case "constant":
            return min(max(lengths.value, lengths.min), lengths.max)
        case "uniform":
            return f"{lengths.min} … {lengths.max}"
        case "mix":
            return "mix of " + ", ".join(map(str, lengths.values))
        case _:
            return f"{lengths.kind}, mean {lengths.mean:g}"
