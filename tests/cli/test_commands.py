"""`python -m msaccel`: evaluating, comparing, fetching, each with a sentence where it cannot."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from msaccel.__main__ import main
from msaccel.models.gpt import MAX_BLOCK, GptSettings
from tests.running import Store, python


def msaccel(*arguments: str) -> subprocess.CompletedProcess[str]:
    return python("-m", "msaccel", *arguments)


@pytest.mark.slow
def test_eval_scores_what_was_saved(trained: Store) -> None:
    """In a process of its own; below it is a fork."""
    run = trained.runs()[0]
    ended = msaccel("eval", run.info.run_id, "--checkpoint", "last", "--tracking-uri", trained.uri)
    assert ended.returncode == 0, ended.stderr
    assert f"accuracy {run.data.metrics['final/accuracy']:.4%}" in ended.stdout


@pytest.mark.slow
def test_eval_scores_the_best_checkpoint(
    trained: Store, saved_runs_in_forks: None, capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained.runs()[0]
    assert main(["eval", run.info.run_id, "--checkpoint", "best", "--tracking-uri", trained.uri]) == 0
    assert f"accuracy {run.data.metrics['best/accuracy']:.4%}" in capsys.readouterr().out


def test_eval_has_the_threads_of_the_run(trained: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without OMP_NUM_THREADS MindSpore computes with one."""
    run, started = trained.runs()[0], []

    def start(command: list[str], env: dict[str, str], **how: object) -> subprocess.CompletedProcess[str]:
        started.append(env)
        return subprocess.CompletedProcess(command, 0, stdout="")

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(subprocess, "run", start)
    assert main(["eval", run.info.run_id, "--tracking-uri", trained.uri]) == 0
    (environment,) = started
    assert environment["OMP_NUM_THREADS"] == run.data.params["device.threads"] == "2"


@pytest.mark.slow
def test_eval_of_an_unknown_run_is_one_sentence(trained: Store) -> None:
    ended = msaccel("eval", "0" * 32, "--tracking-uri", trained.uri)
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1 and "has no saved last checkpoint" in ended.stderr


@pytest.mark.slow
def test_sample_of_a_run_of_images_is_one_sentence(
    trained: Store, saved_runs_in_forks: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sample", trained.runs()[0].info.run_id, "--tracking-uri", trained.uri]) == 2
    said = capsys.readouterr()
    assert not said.out
    assert said.err.splitlines()[-1] == "the run has learned synthetic, no text; give the id of a run of model=gpt."


@pytest.mark.parametrize("option", ["--length=0", "--temperature=nan", "--temperature=-1", "--seed=-1", "--seed=x"])
def test_sample_has_bounds(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["sample", "0" * 32, option])
    assert f"argument {option.split('=')[0]}: " in capsys.readouterr().err


def test_a_prompt_is_no_longer_than_what_a_network_reads(capsys: pytest.CaptureFixture[str]) -> None:
    assert GptSettings.__dataclass_fields__["block"].metadata["range"].at_most == MAX_BLOCK
    with pytest.raises(SystemExit):
        main(["sample", "0" * 32, "--prompt", "a" * 100_000])
    assert (
        capsys.readouterr()
        .err.splitlines()[-1]
        .endswith(
            "argument --prompt: the prompt has 100,000 characters, and a network reads the last 8,192 at most; "
            "give its end alone"
        )
    )


@pytest.mark.parametrize("character", ["\n", '"', "\\", "\x01", "\U0001f600", "\udcff"])
def test_the_longest_prompt_reaches_another_process(character: str) -> None:
    options = json.dumps({"prompt": character * MAX_BLOCK}, ensure_ascii=False)
    subprocess.run([sys.executable, "-S", "-c", "", options], check=True)


@pytest.mark.slow
def test_compare_groups_by_settings_and_counts_a_seed_once(trained: Store) -> None:
    ended = msaccel("compare", "--tracking-uri", trained.uri, "--experiment", "lenet-synthetic")
    assert ended.returncode == 0, ended.stderr
    assert "1 further runs repeat the results of others" in ended.stdout
    assert f"{trained.runs()[1].data.metrics['final/accuracy']:.2%}" in ended.stdout


@pytest.mark.slow
def test_compare_without_runs_is_one_sentence(store: Store) -> None:
    assert store.client  # which makes it
    ended = msaccel("compare", "--tracking-uri", store.uri)
    assert ended.returncode == 2 and "train one first: python run.py" in ended.stderr


@pytest.mark.parametrize(
    "typed",
    [
        "data check --root ADDRESS",
        "data mnist --cache ADDRESS",
        "compare --output ADDRESS",
        "rank-table --check ADDRESS",
        "rank-table --merge ADDRESS",
    ],
)
def test_a_password_in_place_of_a_path_is_refused_and_not_shown(
    typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(typed.replace("ADDRESS", "http://name:planted@host").split()) == 2
    said = capsys.readouterr()
    assert "planted" not in said.out + said.err and len(said.err.splitlines()) == 1 and not [*tmp_path.iterdir()]
