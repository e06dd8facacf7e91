"""Four ranks in processes of their own, which check among themselves what `cluster_checks` says.

They run the checks that were selected, all in one cluster.
"""

import json
import os
import sys
import time

import pytest

from msaccel.launch import rank_env
from msaccel.schema import DeviceSettings
from tests.distributed.cluster_checks import AT_LENGTH, CHECKS
from tests.running import ROOT, soak

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1600)]

RANKS = 4
SECONDS = 1500  # only a hang reaches them


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, composed) -> list[dict[str, str]]:
    """What each rank found."""
    names = [item.callspec.params["name"] for item in request.session.items if item.parent is request.node]
    folder = tmp_path_factory.mktemp("cluster")
    device: DeviceSettings = composed("device=cpu4").device
    env = {**os.environ, "OMP_NUM_THREADS": "1", "GLOG_v": "3", "PYTHONPATH": f"{ROOT}:{ROOT}/src"}
    command = [sys.executable, "-m", "tests.distributed.cluster_checks", str(folder), json.dumps(names)]
    ranks = rank_env.start(device, command, env, folder / "logs")
    try:
        until = time.monotonic() + SECONDS
        while ranks.running() and not ranks.failed() and time.monotonic() < until:
            time.sleep(0.2)
        assert not ranks.failed() and not ranks.running(), f"not done after {SECONDS} seconds"
    finally:
        ranks.kill()
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(RANKS)]


@pytest.mark.parametrize("name", [*(name for name in CHECKS if name not in AT_LENGTH), *soak(*AT_LENGTH)])
def test_ranks_find(found: list[dict[str, str]], name: str) -> None:
    for rank in range(RANKS):
        assert found[rank].get(name, "never came to it") == "", f"rank {rank}"
