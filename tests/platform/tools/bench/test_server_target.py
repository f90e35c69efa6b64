"""Sweeps over what is sent to a running server."""

from __future__ import annotations

import pytest

from lorikeet_engine.experiments.record import Machine
from lorikeet_engine.experiments.scenarios.grid import read_grid
from lorikeet_engine.experiments.sweep import run_sweep
from lorikeet_engine.simulation.workload.strict_records import DescriptionError
from lorikeet_platform.tools.bench.load.target import Target
from lorikeet_platform.tools.bench.server_target import ServerTarget
from tests.support.openai_server import openai_server

GRID = {
    "axis": "concurrency",
    "load": {"prompt_tokens": 6, "output_tokens": 3, "concurrency": [1, 2, 4], "requests_per_client": 2, "pause_s": 0},
}


def test_a_grid_over_load_runs_on_a_server() -> None:
    scenario = read_grid(GRID, name="grid", model="tiny", device="")
    with openai_server() as server:
        target = ServerTarget(Target(url=server.url, model="tiny", n_warmups=0), Machine(model="tiny", device=""))
        record = run_sweep(scenario, target)
    assert (record.source, record.axis) == ("server", "concurrency")
    assert [len(point.requests) for point in record.points] == [2, 4, 8]
    assert [point.setup["concurrency"] for point in record.points] == [1, 2, 4]
    assert all(request.outcome == "ok" for point in record.points for request in point.requests)
    assert all(asked["ignore_eos"] for asked in server.asked)
    assert len({asked["prompt"] for asked in server.asked}) == len(server.asked)


@pytest.mark.parametrize("setting", [{"engine": {"max_num_seqs": 8}}, {"pool_tokens": 1024}])
def test_a_servers_own_settings_cannot_be_varied(setting: dict[str, object]) -> None:
    scenario = read_grid(GRID | setting, name="grid", model="tiny", device="")
    target = ServerTarget(Target(url="http://127.0.0.1:1", model="tiny"), Machine(model="tiny", device=""))
    with pytest.raises(DescriptionError, match=r"max_num_seqs|pool_tokens"):
        run_sweep(scenario, target)
