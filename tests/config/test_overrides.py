"""Which keys the overrides of a command line set, and which values they may have."""

import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import example, given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from omegaconf.errors import ValidationError

from msaccel.accel import methods
from msaccel.config.compose import from_overrides, quoted
from msaccel.config.groups import GROUPS
from msaccel.config.overrides import keys_set_by, override, problems
from msaccel.errors import ConfigError
from msaccel.schema import Config, logged


@pytest.mark.parametrize(
    ("override", "keys"),
    [
        ("optimizer=adam", ["optimizer"]),
        ("optimizer={lr: 0.1, eps: 1e-8}", ["optimizer.lr", "optimizer.eps"]),
        ("++accel.accum={steps: 4}", ["accel.accum.steps"]),
        ("accel=[accum,clip]", ["accel"]),
        ("~train.max_updates", ["train.max_updates"]),
        ("data.root='/a (b)'", ["data.root"]),
        ("data.root=/a (b)", ["data.root"]),  # as a resumed job records it
        ("data.cache=~/x", ["data.cache"]),
    ],
)
def test_keys(override: str, keys: list[str]) -> None:
    assert list(keys_set_by([override])) == keys


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("model.init=default,normal(0.01)", 'model.init=default,"normal(0.01)"'),
        ("+model={init: normal(0.01)}", '+model={init: "normal(0.01)"}'),
        ('tracking.note="begins at normal(0.01)"', 'tracking.note="begins at normal(0.01)"'),
        ("tracking.name=normal(0.01)", "tracking.name=normal(0.01)"),
    ],
)
def test_initialisations_are_quoted_and_notes_stay_as_typed(typed: str, read: str) -> None:
    assert quoted([typed]) == [read]


@given(st.text(max_size=20).filter(str.isprintable))
@example("a, b")
@example("/data/a (1)/it's.db")
@example("${seed}")
@example("null")
@example("9" * 5000)
@example("[" * 400)
def test_a_text_is_read_as_it_was_written(text: str) -> None:
    (key,) = keys_set_by([override("tracking.note", text)])
    read = OverridesParser.create().parse_override(override("tracking.note", text)).value()
    assert key == "tracking.note" and (logged(read) == text or getattr(read, "text", None) == text)


@pytest.mark.parametrize("override", ["experiment=grad_accum_lenet,gpt_shakespeare", "model=glob(l*)"])
def test_what_hydra_can_compose_is_no_problem(override: str) -> None:
    assert problems([override]) == []


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("optimizer={}", "optimizer={} sets nothing; leave it out."),
        ("data={}", "data={} sets nothing; leave it out."),
        ("train={}", "train={} sets nothing; leave it out."),
        ("optimizer={lr: {}}", "optimizer.lr={} sets nothing; leave it out."),
        (
            "accel=[]",
            "accel=[] names no option; "
            "write accel= with one of none, lessbn, resize, freeze, accum, adasum, localsgd, powersgd, sam, "
            "centralize, clip, dimreduce, average.",
        ),
        ("model=lenet.yaml", "model=lenet.yaml names a file, not an option; write model=lenet."),
        ("model=./lenet", "model=./lenet names a file, not an option; write model=lenet."),
        ("model=lenet/", "model=lenet/ names a file, not an option; write model=lenet."),
        (
            "hydra.launcher=joblib",
            "hydra.launcher=joblib names no option; write hydra/launcher= with the name of an option.",
        ),
        ("accel=[accum.yaml,accum]", "accel=[accum.yaml,accum] names a file, not an option; write accel=accum."),
    ],
)
def test_what_hydra_takes_without_effect_or_for_another_thing(override: str, sentence: str) -> None:
    assert problems([override]) == [sentence]


@pytest.mark.parametrize(
    "override",
    ["hydra.sweeper.params=5", "hydra.sweeper.params={a: }", "+hydra.sweeper.params.seed=range(0,3,0)",
     "hydra.sweeper={params: {seed: 5}}", "++hydra.sweeper.params.optimizer.lr='1,2'",
     "hydra={sweeper: {params: {seed: 5}}}", "hydra.sweeper={n_trials: 5, params: {seed: 5}}"],
)  # fmt: skip
def test_parameters_of_the_sweeper_are_written_as_overrides(override: str) -> None:
    said = f"{override} cannot be set here; write what is swept after -m, for example run.py -m seed=0,1,2."
    assert problems([override]) == [said]


def test_no_recipe_is_no_recipes_name() -> None:
    (said,) = problems(["experiment=null"])
    assert said.startswith("experiment=null names no option; write experiment= with one of adasum_lenet,")


@pytest.mark.parametrize("override", ["hydra.output_subdir=.hydra", "hydra={output_subdir: .hydra}"])
def test_hydras_own_files_are_not_put_into_a_jobs_folder(override: str) -> None:
    (said,) = problems([override])
    assert said.startswith(f"{override} would put") and said.endswith("; leave it out.")


def test_a_job_does_not_move_into_its_own_folder() -> None:
    """There a relative store would be made, and removed with the folder."""
    (said,) = problems(["hydra.job.chdir=true"])
    assert said.startswith("hydra.job.chdir=true would look") and said.endswith("; leave it out.")
    assert not problems(["hydra.job.chdir=false"])


@pytest.mark.parametrize("key", ["hydra.run.dir", "hydra.sweep.dir"])
def test_a_folder_is_not_named_after_the_home_folder(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hydra makes it, and reads `~` as a name."""
    monkeypatch.setenv("HOME", "/somewhere")
    assert problems([f"{key}='~/runs'"]) == [f"{key}='~/runs' would be a folder named ~; write {key}=/somewhere/runs."]
    assert not problems([f"{key}=/somewhere/runs"])
    (said,) = problems([f"{key}='~nobody-here/runs'"])
    assert said == "~nobody-here/runs begins with the home of a user who is not here; write another path."


@pytest.mark.parametrize("given", ["typed", "environment"])
def test_a_relative_store_has_its_whole_path(given: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A sweep is resumed from other folders too, in which the same relative path would be another, empty store."""
    monkeypatch.chdir(tmp_path)
    if given == "environment":
        monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///runs/mlflow.db")
    overrides = ["tracking.uri=sqlite:///runs/mlflow.db"] if given == "typed" else []
    assert from_overrides(overrides).tracking.uri == f"sqlite:///{tmp_path}/runs/mlflow.db"


def test_a_store_may_be_in_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A shell leaves `~` within a word as it is, and a folder of that name would be made."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert from_overrides(["tracking.uri='sqlite:///~/mlflow.db'"]).tracking.uri == f"sqlite:///{tmp_path}/mlflow.db"


def test_tags_fit_a_parameter_of_mlflow_which_would_cut_them_silently() -> None:
    tags = [f"+tracking.tags.{name}={'a' * 1950}" for name in "bc"]
    assert len(from_overrides(tags).tracking.tags) == 2
    with pytest.raises(ConfigError, match=r"^tracking\.tags has \d+ characters in all; write at most 4000\.$"):
        from_overrides([*tags, f"+tracking.tags.d={'a' * 1950}"])
    with pytest.raises(ConfigError, match=r"^tracking\.tags\.b=a+… has 6001 characters; write at most 4000\.$"):
        from_overrides([f"+tracking.tags.b={'a' * 6001}"])


@pytest.mark.parametrize("key", ["data.root", "data.cache", "tracking.uri", "device.rank_table"])
def test_a_path_is_not_empty(key: str) -> None:
    with pytest.raises(ConfigError, match=f"{re.escape(key)}= is empty; write a value"):
        from_overrides([f"{key}="])


def test_artifacts_are_not_in_an_empty_path() -> None:
    with pytest.raises(ConfigError, match=r"tracking\.artifacts= is no folder; write a folder"):
        from_overrides(["tracking.artifacts="])


@pytest.mark.parametrize(
    "override",
    [
        "hydra.callbacks.secrets=null",
        "++hydra.callbacks={}",
        "hydra={callbacks: null}",
        "+hydra.callbacks.x._target_=f",
    ],
)
def test_the_callbacks_that_hide_passwords_and_check_sweeps_stay(override: str) -> None:
    """Without the first one the password of tracking.uri stood in overrides.txt and job.json."""
    (problem,) = problems([override])
    assert problem.endswith("keeps passwords from being stored and checks sweeps; leave it out.")


def schemas(schema: Any) -> Iterator[Any]:
    """A schema and those of its groups of keys."""
    yield schema
    for kind in get_type_hints(schema).values():
        yield from schemas(kind) if is_dataclass(kind) else ()


def test_true_is_no_number() -> None:
    free = []
    options = [schema for group in GROUPS.values() for schema in group.values()]
    of_methods = [method.settings for method in methods().values()]
    for schema in dict.fromkeys(each for one in (Config, *options, *of_methods) for each in schemas(one)):
        for name, kind in get_type_hints(schema).items():
            if {int, float} & {kind, *get_args(kind)}:
                with pytest.raises(ValidationError):
                    OmegaConf.update(OmegaConf.structured(schema), name, True)
            elif kind is Any:
                free.append(name)
    assert sorted(free) == ["accum_steps", "eval_every", "every"], "two may be auto, one may be a fraction"


@pytest.mark.parametrize(
    "overrides", [("tracking.every=true",), ("accel=dimreduce", "accel.dimreduce.accum_steps=true")]
)
def test_true_is_no_number_where_a_word_may_stand(overrides: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="does not exist; write"):
        from_overrides(overrides)


@pytest.mark.parametrize(("written", "read"), [("1", 1), ("1.0", 1), ("0.5", 0.5), ("2.5", 2.5)])
def test_one_and_1_0_evaluate_equally_often(written: str, read: float) -> None:
    found = from_overrides([f"train.eval_every={written}"]).train.eval_every
    assert (found, type(found)) == (read, type(read)), "a comparison compares how it is logged"


@pytest.mark.parametrize("written", ["true", "null", "[1]", "{a: 1}", "often"])
def test_only_a_number_says_how_often_to_evaluate(written: str) -> None:
    with pytest.raises(ConfigError, match=r"is no number; write for example train\.eval_every=1, or 0\.1\."):
        from_overrides([f"train.eval_every={written}"])
