"""What the plan prints starts the same job on every server, whatever the shell, or nothing is printed."""

import shlex
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msaccel.__main__ import main
from msaccel.cli.commands.launch_plan import plan
from msaccel.config.compose import from_overrides
from msaccel.errors import UserError
from msaccel.schema import Config

HOSTS = ("node-a.site", "10.0.0.2")
OVERRIDES = (
    "accel=[accum,clip]",
    "accel=adasum",
    "model.init=normal(0.01)",
    "seed=7",
    "tracking.experiment='two words'",
    'tracking.experiment="it\'s $HOME"',
    "schedule=step",
    "device.timeout_s=60",
)


def commands(overrides: list[str], style: str = "type", folder: str = "/some where/it's") -> list[list[str]]:
    """The words of each `run.py`, as the shells on the servers would split them."""
    lines = [line for line in plan(overrides, HOSTS, 8118, style, Path(folder)) if not line.startswith("#")]
    if style == "type":
        return [shlex.split(line) for line in lines]
    inner = [shlex.split(shlex.split(line)[-1]) for line in lines]
    assert all(words[:3] == ["cd", folder, "&&"] for words in inner)
    if style == "srun":
        assert len(inner) == 1
        inner = [[word.replace("$SLURM_NODEID", str(rank)) for word in inner[0]] for rank in range(len(HOSTS))]
    return [words[3:] for words in inner]


def expected(overrides: list[str], rank: int) -> Config:
    config = from_overrides(overrides)
    config.device.server_rank, config.device.master = rank, f"{HOSTS[0]}:8118"
    return config


@pytest.mark.parametrize("style", ["type", "ssh", "srun"])
def test_every_command_composes_the_same_job(style: str) -> None:
    overrides = ["device=ascend16", *OVERRIDES[1:6]]
    for rank, words in enumerate(commands(overrides, style)):
        assert words[0].endswith("python") and words[1] == "run.py"
        assert from_overrides(words[2:]) == expected(overrides, rank)


@pytest.mark.slow
@settings(max_examples=3, deadline=None)
@given(
    st.lists(st.sampled_from(OVERRIDES), max_size=4, unique_by=lambda override: override.split("=")[0]),
    st.sampled_from(["ascend16", "cpu2x2"]),
    st.sampled_from(["type", "ssh", "srun"]),
)
def test_any_overrides_survive_the_shells(chosen: list[str], device: str, style: str) -> None:
    overrides = [*chosen, f"device={device}"]
    for rank, words in enumerate(commands(overrides, style)):
        assert from_overrides(words[2:]) == expected(overrides, rank)


def test_the_lines_of_two_servers() -> None:
    assert plan(["device=ascend16"], ["a", "b"], 9000, "type") == [
        "# 2 servers of 8 ranks each, which meet at a: its ports 9000 and 9001 must be free there and reachable from "
        "all servers.",
        "# All need the same secret of yours in MSACCEL_CLUSTER_TOKEN; make one: "
        "python -c 'import secrets; print(secrets.token_hex(32))'",
        "# on a, in the folder of msaccel:",
        "python run.py device=ascend16 device.server_rank=0 device.master=a:9000",
        "# on b, in the folder of msaccel:",
        "python run.py device=ascend16 device.server_rank=1 device.master=a:9000",
    ]


def test_the_line_of_slurm() -> None:
    line = plan(["device=ascend16"], ["a", "b"], 8118, "srun", Path("/job"))[-1]
    assert line == (
        "srun --nodes=2 --ntasks-per-node=1 --nodelist=a,b sh -c "
        "'cd /job && python run.py device=ascend16 device.server_rank=$SLURM_NODEID device.master=a:8118'"
    )


@pytest.mark.parametrize("style", ["type", "ssh", "srun"])
@pytest.mark.parametrize("overrides", [["device=ascend8"], ["seed=1"], ["device=ascend16", "device.simulate=always"]])
def test_one_process_group_needs_no_plan(overrides: list[str], style: str) -> None:
    comment, command = plan(overrides, [], 8118, style)
    assert comment.startswith("#") and shlex.split(command) == ["python", "run.py", *overrides]


def test_servers_of_the_cpu_may_be_one_machine() -> None:
    assert len(plan(["device=cpu2x2"], ["127.0.0.1", "127.0.0.1"], 8118, "type")) == 6


REFUSED = {
    "unknown device": (["device=ascend32"], "a,b", 8118, "device=ascend32 does not exist; write device= with one of"),
    "unknown key": (["train.epoch=3"], "", 8118, "train.epoch is not a key; write train.epochs=3."),
    "out of range": (["device=ascend16", "seed=-1"], "a,b", 8118, "seed=-1 is out of range"),
    "wrong type": (["device=ascend16", "train.epochs=x"], "a,b", 8118, "train.epochs=x has the wrong type"),
    "several values": (["device=ascend16", "seed=0,1"], "a,b", 8118, "write run.py -m to sweep over them"),
    "a password": (["device=ascend16", "tracking.uri='http://a:b@c'"], "a,b", 8118, "tracking.uri holds a password"),
    "no hosts": (["device=ascend16"], "", 8118, "write one host for each, such as --hosts a,b."),
    "a host too few": (["device=ascend16"], "a", 8118, "--hosts names 1 of the 2 servers of device=ascend16"),
    "a host too many": (["device=ascend16"], "a,b,c", 8118, "--hosts names 3 of the 2 servers"),
    "hosts of one server": (["device=ascend8"], "a,b", 8118, "device=ascend8 has one server; leave --hosts out."),
    "hosts of one process": (
        ["device=ascend16", "device.simulate=always"],
        "a,b",
        8118,
        "device=ascend16 is simulated in one process; leave --hosts out.",
    ),
    "a host twice": (["device=ascend16"], "a,a", 8118, "--hosts names a host twice"),
    "an option for a host": (["device=ascend16"], "a,-oProxyCommand=x", 8118, "which is no host"),
    "an empty host": (["device=ascend16"], "a,", 8118, "'', which is no host"),
    "a command for a host": (["device=ascend16"], "a,$(b)", 8118, "which is no host"),
    "an IPv6 host": (["device=ascend16"], "fe80::1,fe80::2", 8118, "write names or IPv4 addresses"),
    "the last port": (["device=ascend16"], "a,b", 65535, "--port=65535 is out of range"),
    "no port": (["device=ascend16"], "a,b", 0, "--port=0 is out of range"),
    "rank given": (["device=ascend16", "device.server_rank=0"], "a,b", 8118, "device.server_rank is what the plan"),
    "master given": (["device=ascend16", "device.master=a:1"], "a,b", 8118, "device.master is what the plan"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_plan_that_cannot_work_is_one_sentence(case: str) -> None:
    overrides, hosts, port, phrase = REFUSED[case]
    with pytest.raises(UserError) as refusal:
        plan(overrides, hosts.split(",") if hosts else [], port, "type")
    assert phrase in str(refusal.value) and "\n" not in str(refusal.value)


def test_slurm_lists_no_node_twice() -> None:
    with pytest.raises(UserError, match="names a host twice"):
        plan(["device=cpu2x2"], ["a", "a"], 8118, "srun")


def test_the_command_prints_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["launch-plan", "device=ascend16", "seed=3", "--hosts", "a,b", "--port", "8200"]) == 0
    assert "python run.py device=ascend16 seed=3 device.server_rank=1 device.master=a:8200" in capsys.readouterr().out


def test_the_command_refuses_with_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["launch-plan", "device=ascend16", "--hosts", "a"]) == 2
    ended = capsys.readouterr()
    assert ended.out == "" and len(ended.err.splitlines()) == 1
