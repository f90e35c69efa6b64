"""N-72: nothing that comes from outside is ever unpickled, neither by the engine nor by the platform."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from tests.architecture.test_house_rules import modules, name_of

FORBIDDEN_MODULES = {
    "pickle",
    "cPickle",
    "_pickle",
    "pickletools",
    "marshal",
    "shelve",
    "dill",
    "cloudpickle",
    "joblib",
}
FORBIDDEN_CALLS = {"recv_pyobj", "send_pyobj"}
# The one program that opens pickles, in a jail of its own, with torch's restricted unpickler.
JAILED = "adapters/lorikeet_adapters/sandbox/unpickler.py"


def uses(source: str) -> set[str]:
    """What a module names of all that makes objects out of bytes."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names):
                found |= {alias.name.split(".")[0] for alias in names} & FORBIDDEN_MODULES
            case ast.ImportFrom(module=str(module)):
                found |= {module.split(".")[0]} & FORBIDDEN_MODULES
            case ast.Attribute(attr=name) if name in FORBIDDEN_CALLS:
                found.add(name)
            case ast.Attribute(value=ast.Name("torch"), attr="load"):
                found.add("torch.load")
    return found


def test_n_72_no_module_of_ours_reads_pickles() -> None:
    found = {name_of(path): uses(path.read_text()) for path in modules()}
    assert found.pop(JAILED) == {"pickle", "torch.load"}
    assert {name: used for name, used in found.items() if used} == {}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import pickle", {"pickle"}),
        ("from _pickle import loads as read", {"_pickle"}),
        ("socket.recv_pyobj()", {"recv_pyobj"}),
        ("torch.load(path)", {"torch.load"}),
        ("from lorikeet.pickle import x\nmodel.load(path)", set()),
    ],
)
def test_the_check_sees_what_it_looks_for(source: str, found: set[str]) -> None:
    assert uses(source) == found


RUNTIME = """
import pickle, sys
import lorikeet_engine.server, lorikeet_engine.__main__, lorikeet_platform.app, lorikeet_platform.worker
readers = {id(thing) for thing in (pickle, pickle.load, pickle.loads, pickle.Unpickler, pickle._Unpickler)}
print([
    f"{name}.{attribute}"
    for name, module in list(sys.modules.items())
    if name.startswith("lorikeet_")
    for attribute, value in vars(module).items()
    if id(value) in readers
])
"""


@pytest.mark.slow
def test_n_72_no_module_of_engine_gateway_or_worker_holds_an_unpickler_when_all_are_imported() -> None:
    done = subprocess.run([sys.executable, "-c", RUNTIME], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
