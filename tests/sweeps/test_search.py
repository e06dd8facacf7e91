"""A search for the best rate goes by validation accuracy, and cannot be made unfair."""

import subprocess
import sys

import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_dir

from msaccel.config import compose
from msaccel.files import CONF, ROOT
from msaccel.sweeps import presets, search
from tests.running import Store

SEARCH = (
    "-m", "hydra/sweeper=optuna", "hydra.sweeper.n_trials=2", "data.val_fraction=0.2", "model=mlp", "data=synthetic",
    "data.train_size=340", "data.test_size=70", "train.epochs=1",
)  # fmt: skip
HIDDEN = """
import sys
sys.modules["hydra_plugins.hydra_optuna_sweeper"] = None
sys.argv = ["run.py", "hydra/sweeper=optuna"]
from msaccel.cli.main import main
sys.exit(main())
"""


@pytest.mark.slow
def test_a_search_tries_rates_and_names_the_best(store: Store) -> None:
    ended = store.run(*SEARCH, "accel=clip", "optimizer.lr=choice(0.02,1e12)")
    # The seed of the search draws one of each; the rate 1e12 breaks every training.
    trials = {run.data.params["optimizer.lr"]: run for run in store.runs()}
    assert {rate: run.info.status for rate, run in trials.items()} == {"0.02": "FINISHED", "1000000000000.0": "FAILED"}
    accuracy = trials["0.02"].data.metrics["val/accuracy"]
    said = f"best of the trials, by validation accuracy: optimizer.lr=0.02 ({accuracy:.2%})"
    assert said in ended.stdout and ended.returncode == 1, ended.stderr
    assert len({run.data.tags["sweep_id"] for run in trials.values()}) == 1


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("hydra.sweeper.n_jobs=0", "hydra.sweeper.n_jobs=0 tries nothing; write a number from 1 on."),
        ("hydra.sweeper.n_trials=0", "hydra.sweeper.n_trials=0 tries nothing; write a number from 1 on."),
        ("hydra.sweeper.direction=minimize", "hydra.sweeper.direction chooses the best validation accuracy"),
        ("hydra.sweeper.direction=[maximize,minimize]", "hydra.sweeper.direction chooses the best validation"),
    ],
)
def test_a_search_that_never_ends_or_names_the_worst_is_refused(typed: str, said: str) -> None:
    compose.register()
    presets.register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        composed = hydra_compose("config", [*SEARCH[1:], typed], return_hydra_config=True)
    (refusal,) = search.refusals(composed)
    assert refusal.startswith(said)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (("accel=none,clip",), "write a search for each, with the same hydra.sweeper.n_trials."),
        (("seed=0,1",), "seed is nothing to search for"),
        (("data.val_fraction=0",), "write data.val_fraction=0.0833333."),
    ],
)
def test_what_would_be_unfair_is_refused(store: Store, overrides: tuple[str, ...], said: str) -> None:
    ended = store.run(*SEARCH, *overrides)
    assert ended.returncode == 2 and said in ended.stderr and store.runs() == []


def test_without_the_package_the_sentence_says_how_to_get_it() -> None:
    ended = subprocess.run([sys.executable, "-c", HIDDEN], cwd=ROOT, capture_output=True, text=True, timeout=400)
    assert ended.returncode == 2
    assert ended.stderr == (
        "hydra/sweeper=optuna needs a package that is missing; run pip install -e '.[tune]' -c constraints.txt.\n"
    )
