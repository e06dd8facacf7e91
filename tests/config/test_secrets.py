"""However an address with a password is typed: nothing that is written down has it, and MLflow's client gets it."""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict
from pathlib import Path

import pytest
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from msaccel.config import compose
from msaccel.config.bounds import bad_values
from msaccel.config.messages import HYDRA_ERRORS, sentence
from msaccel.config.secrets import hide
from msaccel.errors import ConfigError
from msaccel.files import CONF, ROOT
from msaccel.launch.job import Task
from msaccel.schema import Config, parameters
from msaccel.sweeps.folder import SweepCommand, SweepFolder
from msaccel.tracking import credentials
from msaccel.tracking.credentials import complete, without_password
from tests.running import python

PASSWORD, TOKEN = "planted/word", "planted-token"
SERVER = f"http://planted-user:{PASSWORD}@host:5000"
DATABASE = f"postgresql://planted-user:{PASSWORD}@host/base?token={TOKEN}"

SPELLINGS = {
    "plain": ("tracking.uri=ADDRESS",),
    "in quotes": ("tracking.uri='ADDRESS'",),
    "in double quotes": ('tracking.uri="ADDRESS"',),
    "forced": ("++tracking.uri='ADDRESS'",),
    "twice": ("tracking.uri=sqlite:///first.db", "tracking.uri='ADDRESS'"),
    "in braces": ("tracking={uri: 'ADDRESS', experiment: its-own}",),
    "from the environment": ("tracking.uri='${oc.env:SEC}'",),
    "from the environment, in braces": ("tracking={uri: '${oc.env:SEC}'}",),
    "in a configuration of one's own": ("experiment=mine",),
}
KEPT_AS_TYPED = ("seed=0,1", "accel=accum")
REFUSED = {
    "no scheme": "tracking.uri='name:planted@host:5000'",
    "no scheme, in braces": "tracking={uri: 'name:planted@host'}",
    "one slash": "tracking.uri='http:/name:planted@host'",
    "three slashes": "tracking.uri='http:///name:planted@host'",
    "no colon": "tracking.uri='http//name:planted@host'",
    "a space": "tracking.uri=' http://name:planted@host'",
    "a space within": "tracking.uri='http://name:plan ted@host x'",
    "Databricks": "tracking.uri='databricks://name:planted@host'",
    "a token for a server": "tracking.uri='http://host:5000?auth=planted'",
    "a token, and no scheme": "tracking.uri='host:5000?auth=planted'",
    "a fragment": "tracking.uri='http://host:5000/#planted'",
    "no quotes": "tracking.uri=http://host:5000?auth=planted",
    "one quote": "tracking.uri='http://name:planted@host",
    "added": "+tracking.uri='http://name:planted@host'",
    "taken away": "~tracking.uri='name:planted@host'",
    "in place of the group": "tracking='http://name:planted@host'",
    "two stores, without a scheme": "tracking.uri=name:planted@a,name:planted@b",
    "two stores": "tracking.uri=http://name:planted@a,http://name:planted@b",
    "two stores, in braces": "tracking={uri: 'http://name:planted@a'},{uri: 'http://name:planted@b'}",
    "another key": "tracking.artifacts='http://name:planted@host'",
    "another key, from the environment": "model.init='${oc.env:SEC}'",
    "another key, of another type": "seed='http://name:planted@host'",
    "another key, a long password": f"tracking.experiment='http://name:planted{'x' * 100}@host'",
    "a key without bounds": "tracking.every={a: 'http://name:planted@host'}",
    "a key that is none": "+tracking.url='http://name:planted@host'",
    "a group that is none": "+url='http://name:planted@host'",
    "the searched results": "+hydra.sweeper.storage='postgresql://name:planted@host/base'",
    "a quoted tag": "+tracking.tags.'http://name:planted@host'=x",
    "a key": "'http://name:planted@host'=3",
    "neither key nor value": "http://name:planted@host",
    "a key with a pattern": "device.master='name:planted@host:1'",
    "a key with choices": "precision='name:planted@host'",
    "a key with a line break": "model.init='name:planted@host\n'",
    "the name of a tag": "tracking.tags={'name:planted@host:1': x}",
    "a signed address": "data.root='https://host/a?sig=planted'",
    "the job's name": "hydra.job.name='http://name:planted@host'",
    "a folder": "hydra.sweep.subdir='http://name:planted@host'",
    "a password in the job's environment": "+hydra.job.env_set.MLFLOW_TRACKING_PASSWORD=planted",
    "a token in a launcher's commands": "+hydra.launcher.setup=['export HF_TOKEN=planted']",
    "the folder of a job": "hydra={run: {dir: 'http://name:planted@host'}}",
    "the job's environment": "+hydra.job.env_set.MLFLOW_TRACKING_URI='http://name:planted@host'",
}  # fmt: skip


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (credentials._URI, credentials._USER, credentials._PASSWORD):
        monkeypatch.setenv(name, "before")  # so that it is as it was afterwards
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    "name",
    ["TOKENIZERS_PARALLELISM", "GIT_AUTHOR_NAME", "KEYBOARD", "MAX_TOKENS", "COMPASS_HOME", "DESIGN", "SIGNAL",
     "SACRED_FOLDER", "INSIGHT", "monkeypatch", "PASSES", "KEYWORDS"],
)  # fmt: skip
def test_a_word_that_contains_one_names_no_secret(name: str) -> None:
    assert not credentials.names_a_secret(name)


@pytest.mark.parametrize(
    "name",
    ["MLFLOW_TRACKING_TOKEN", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "SSHPASS", "APIKEY", "HF_TOKENS", "AUTHORIZATION",
     "SIGNATURE", "KEYDATA", "DB_PWD", "GOOGLE_APPLICATION_CREDENTIALS", "AUTHOR_KEY", "TOKENIZER_TOKEN", "auth",
     "SIGNING", "PASSPHRASE", "KEYBOARDKEY"],
)  # fmt: skip
def test_a_name_that_may_be_of_a_secret_is_taken_for_one(name: str) -> None:
    assert credentials.names_a_secret(name)


def asked(folder: Path, *overrides: str) -> tuple[DictConfig, Config]:
    """What Hydra makes of a sweep's command line and hands to the callbacks, and the settings of its second job."""
    compose.register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        places = [f"hydra.searchpath=[{folder}]", f"hydra.run.dir={folder}/job", f"hydra.sweep.dir={folder}/sweep"]
        loader = GlobalHydra.instance().config_loader()
        config = loader.load_configuration("config", [*places, *overrides], RunMode.MULTIRUN)
        hide(config)
        task = [text for text in config.hydra.overrides.task if text != "seed=0,1"]
        composed = loader.load_sweep_config(config, [*task, "seed=1"])
    with read_write(composed), open_dict(composed):
        del composed["hydra"]
    return config, compose.typed(composed)


def written(config: DictConfig, job: Config, folder: Path) -> str:
    """All that a job or sweep writes down of its settings: in Hydra's files, its own, and MLflow."""
    sweep = SweepFolder(folder / "sweep")
    sweep.create(config)
    compose.save(job, folder / "config.yaml")
    task = Task("name", list(config.hydra.overrides.task))
    texts = [path.read_text() for path in (folder / "config.yaml", folder / "sweep" / "sweep.json")]
    settings = {name: value for name, value in OmegaConf.to_container(config).items() if name != "hydra"}
    resolved = OmegaConf.to_yaml(OmegaConf.create(settings), resolve=True)
    return "\n".join([*texts, OmegaConf.to_yaml(config), resolved, json.dumps(asdict(task)), str(parameters(job))])


@pytest.mark.parametrize(
    ("spelling", "address"),
    [*((spelling, SERVER) for spelling in SPELLINGS), *((spelling, DATABASE) for spelling in list(SPELLINGS)[1:6])],
)
def test_a_password_reaches_the_client_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelling: str, address: str
) -> None:
    monkeypatch.setenv("SEC", address)
    mine = tmp_path / "experiment" / "mine.yaml"
    mine.parent.mkdir()
    mine.write_text(f"# @package _global_\ntracking: {{uri: '{address}'}}\n")
    typed = [text.replace("ADDRESS", address) for text in SPELLINGS[spelling]]
    config, job = asked(tmp_path, *KEPT_AS_TYPED, *typed)
    assert not bad_values(job) and job.tracking.uri == without_password(address)
    mine.unlink()
    found = written(config, job, tmp_path)
    assert "planted" not in found
    assert set(KEPT_AS_TYPED) < set(config.hydra.overrides.task)
    assert job.tracking.experiment == ("its-own" if "its-own" in str(typed) else "lenet-mnist")
    if address == SERVER:
        assert (os.environ[credentials._USER], os.environ[credentials._PASSWORD]) == ("planted-user", PASSWORD)
    else:
        assert complete(job.tracking.uri) == address


@pytest.mark.parametrize("spelling", REFUSED)
def test_what_is_mistyped_is_refused_and_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelling: str
) -> None:
    monkeypatch.setenv("SEC", "http://name:planted@host")
    with pytest.raises((ConfigError, *HYDRA_ERRORS)) as raised:
        _, job = asked(tmp_path, REFUSED[spelling])
        raise ConfigError("\n".join(bad_values(job)))
    said = str(raised.value) if isinstance(raised.value, ConfigError) else sentence(raised.value)
    assert len(said) > 20 and "planted" not in said


def test_a_mistyped_address_in_the_environment_is_refused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(credentials._URI, "name:planted@host:5000")
    with pytest.raises(ConfigError, match="not shown, since it may hold a password"):
        compose.from_overrides(["data=synthetic"])


def test_a_reference_of_hydras_that_leads_nowhere_hides_no_password_from_us(tmp_path: Path) -> None:
    nowhere = "+hydra.launcher.extra='${oc.env:NO_SUCH_NAME}'"
    config, job = asked(tmp_path, *KEPT_AS_TYPED, nowhere, f"tracking.uri='{SERVER}'")
    assert job.tracking.uri == "http://host:5000" and "planted" not in OmegaConf.to_yaml(config)


@pytest.mark.parametrize("override", ["optimizer.weight_decay='${.lr}'", "hydra.sweeper=null"])
def test_a_password_is_removed_beside_any_other_override(tmp_path: Path, override: str) -> None:
    compose.register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        typed = [f"hydra.run.dir={tmp_path}/job", override, f"tracking.uri='{SERVER}'"]
        config = GlobalHydra.instance().config_loader().load_configuration("config", typed, RunMode.RUN)
        hide(config)
    assert "planted" not in OmegaConf.to_yaml(config)


@pytest.mark.parametrize("path", ["/a?b/mlflow.db", "/a#b@c:d/mlflow.db", "/a%20b&c=d/mlflow.db"])
def test_the_path_of_a_sqlite_store_may_have_any_sign(path: str) -> None:
    assert compose.from_overrides([f"tracking.uri='sqlite:///{path}'"]).tracking.uri == f"sqlite:///{path}"


def test_plain_addresses_and_overrides_are_left_as_they_are(tmp_path: Path) -> None:
    typed = ("seed=0,1", "tracking.uri=sqlite:////home/me@work/mlflow.db", "tracking={experiment: mine}")
    config, _ = asked(tmp_path, *typed)
    assert tuple(config.hydra.overrides.task) == typed
    assert SweepCommand.of(config).tracking_uri == "sqlite:////home/me@work/mlflow.db"


@pytest.mark.parametrize(
    "shown", [("--cfg", "job"), ("-cjob",), ("--info", "config"), ("-i", "all"), ("--help",)], ids=str
)
def test_what_hydra_prints_of_a_configuration_has_no_password(tmp_path: Path, shown: tuple[str, ...]) -> None:
    typed = (*shown, f"hydra.run.dir={tmp_path}/job", f"tracking.uri='{SERVER}'")
    ended = python(str(ROOT / "run.py"), *typed, folder=tmp_path)
    assert ended.returncode == 0 and len(ended.stdout) > 100, ended.stderr
    assert "planted" not in ended.stdout + ended.stderr


@pytest.mark.parametrize("shown", [("--cfg", "all"), ("--info", "config")], ids=str)
def test_what_hydra_prints_of_a_mistyped_address_has_no_password(tmp_path: Path, shown: tuple[str, ...]) -> None:
    ended = python(str(ROOT / "run.py"), *shown, "tracking.uri='name:planted@host:5000'", folder=tmp_path)
    assert ended.returncode == 0 and "host:5000" in ended.stdout and "planted" not in ended.stdout + ended.stderr


@pytest.mark.parametrize("more", [("--cfg", "job"), ("-m", "seed=0,1"), ("seed=0",), ("seed=0,1",)], ids=str)
def test_run_py_prints_and_stores_no_password(tmp_path: Path, more: tuple[str, ...]) -> None:
    """Jobs that are refused, and Hydra's own printing of a configuration."""
    places = [f"hydra.run.dir={tmp_path}/job", f"hydra.sweep.dir={tmp_path}/sweep"]
    typed = (*more, *places, f"tracking.uri='{SERVER}'", "optimizer.lr=-1")
    ended = python(str(ROOT / "run.py"), *typed, folder=tmp_path, HYDRA_FULL_ERROR="")
    assert ended.returncode == (0 if "--cfg" in more else 2), ended.stderr
    assert re.search("http://host:5000|optimizer.lr=-1|seed=0,1 names several", ended.stdout + ended.stderr)
    assert "planted" not in ended.stdout + ended.stderr
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in files if b"planted" in path.read_bytes()] == []
