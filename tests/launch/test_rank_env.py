"""What each rank is told: by MindSpore's dynamic cluster, or by a rank table."""

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from msaccel.devices import ranktable_file
from msaccel.errors import UserError
from msaccel.launch import rank_env
from msaccel.launch.simulation import resolve

TABLE = [sys.executable, "-c"]


def written(folder: Path, servers: int, devices: int) -> Path:
    """A rank table."""
    entry = lambda server, device: {  # noqa: E731
        "device_id": str(device),
        "device_ip": f"192.{server + 1}.27.{device + 6}",
        "rank_id": str(server * devices + device),
    }
    listed = [
        {"server_id": f"10.0.0.{server + 1}", "device": [entry(server, device) for device in range(devices)]}
        for server in range(servers)
    ]
    content = {"version": "1.0", "server_count": str(servers), "server_list": listed, "status": "completed"}
    path = folder / "table.json"
    path.write_text(json.dumps(content, indent=1))
    return path


def test_second_server_of_a_cluster(composed) -> None:
    device = composed("device=ascend16", "device.server_rank=1", "device.master=10.0.0.1:8118").device
    scheduler, ranks = rank_env.rank_environments(device)
    assert scheduler == {} and list(ranks) == list(range(8, 16))
    assert ranks[11] == {
        "MS_WORKER_NUM": "16",
        "MS_SCHED_HOST": "10.0.0.1",
        "MS_SCHED_PORT": "8119",
        "MS_TOPO_TIMEOUT": "300",
        "MS_ROLE": "MS_WORKER",
        "MS_NODE_ID": "11",
        "RANK_SIZE": "16",
        "RANK_ID": "11",
        "DEVICE_ID": "3",
        "MSACCEL_HOST": "10.0.0.1",
    }


def test_first_server_has_the_scheduler(composed) -> None:
    device = composed("device=ascend16", "device.server_rank=0", "device.master=10.0.0.1:8118").device
    scheduler, ranks = rank_env.rank_environments(device)
    assert scheduler["MS_ROLE"] == "MS_SCHED" and scheduler["MS_SCHED_PORT"] == "8119"
    assert list(ranks) == list(range(8))


def test_all_servers_of_one_call_meet_on_the_loopback(composed) -> None:
    scheduler, ranks = rank_env.rank_environments(composed("device=cpu2x2").device)
    assert {own["MS_SCHED_HOST"] for own in (scheduler, *ranks.values())} == {"127.0.0.1"}
    assert [own["DEVICE_ID"] for own in ranks.values()] == ["0", "1", "0", "1"]


@pytest.mark.parametrize("name", ["cpu", "gpu", "ascend1"])
def test_a_single_rank_needs_no_cluster(composed, name: str) -> None:
    assert rank_env.rank_environments(composed(f"device={name}").device) == ({}, {0: {}})


def test_virtual_ranks_are_one_process(composed) -> None:
    assert rank_env.rank_environments(replace(composed("device=ascend16").device, simulate="always")) == ({}, {0: {}})


def test_ranks_by_a_table(composed, tmp_path: Path) -> None:
    path = written(tmp_path, 2, 8)
    device = composed("device=ascend16", "device.server_rank=1", f"device.rank_table={path}").device
    scheduler, ranks = rank_env.rank_environments(device)
    assert scheduler == {} and list(ranks) == list(range(8, 16))
    assert ranks[15] == {
        "RANK_TABLE_FILE": str(path),
        "RANK_ID": "15",
        "DEVICE_ID": "7",
        "RANK_SIZE": "16",
        "MSACCEL_HOST": "10.0.0.1",
    }


def test_the_first_rank_listens_where_all_can_reach_it(composed, tmp_path: Path) -> None:
    """The servers of a table may have any names: one server needs none, and several need one that can be found."""
    for servers, name, host in ((1, "node_0", "127.0.0.1"), (2, "localhost", "localhost"), (2, "::1", "::1")):
        path = written(tmp_path, servers, 8)
        path.write_text(path.read_text().replace('"10.0.0.1"', f'"{name}"'))
        device = composed("device=ascend16", f"device.servers={servers}", f"device.rank_table={path}").device
        device = replace(device, server_rank=0 if servers > 1 else None)
        assert rank_env.rank_environments(device)[1][0]["MSACCEL_HOST"] == host
    path.write_text(path.read_text().replace('"::1"', '"node_0.invalid"'))
    with pytest.raises(UserError, match=r"server_id node_0\.invalid is no address that this machine knows; write the"):
        rank_env.rank_environments(device)


def test_a_table_of_another_topology(composed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, 1, 8)
    device = composed("device=ascend16", "device.server_rank=0", f"device.rank_table={path}").device
    with pytest.raises(UserError, match="1 server"):
        rank_env.rank_environments(device)
    monkeypatch.setattr("msaccel.devices.doctor.missing", lambda device: [])
    assert "1 server" in resolve(device).refusals[0]
    assert str(ranktable_file.read(path)) == "1 server with 8 ranks"


def test_processes_get_it(composed, tmp_path: Path) -> None:
    """Started for real: each rank writes down what it was told, with what is common to all."""
    device = composed("device=ascend8", f"device.rank_table={written(tmp_path, 1, 8)}").device
    script = "import os; open(os.environ['OUT'] + os.environ['RANK_ID'], 'w').write(os.environ['MSACCEL_RANK'])"
    common = {"OUT": f"{tmp_path}/rank", "PYTHONPATH": ":".join(sys.path)}
    processes = rank_env.start(device, [*TABLE, script], common, tmp_path / "logs")
    until = time.monotonic() + 200
    while processes.running() and time.monotonic() < until:
        time.sleep(0.05)
    assert not processes.failed() and not processes.running()
    processes.kill()
    assert sorted(path.read_text() for path in tmp_path.glob("rank*")) == [str(rank) for rank in range(8)]
    assert len(list((tmp_path / "logs").iterdir())) == 7
