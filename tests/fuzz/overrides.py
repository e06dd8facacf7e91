"""Command lines of `run.py` from the grammar of Hydra's overrides, right and wrong ones, and what is said of them."""

from __future__ import annotations

from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode
from hypothesis import strategies as st

from msaccel.config import compose
from msaccel.config.checks import refusals, without_effect
from msaccel.config.groups import GROUPS
from msaccel.config.overrides import problems
from msaccel.config.suggestions import ALIASES, choose, known_keys
from msaccel.errors import UserError
from msaccel.files import CONF
from msaccel.sweeps import checked_jobs, presets, search, submitit

_CHOICES = (*GROUPS, "accel", "experiment")
_OPTIONS = sorted({word.strip(",") for group in _CHOICES for word in choose(group).split()[5:]})
_HYDRA = ("hydra", "hydra/launcher", "hydra/sweeper", "hydra.run.dir", "hydra.sweep.dir", "hydra.mode", "hydra.job.num",
          "hydra.verbose", "hydra.searchpath", "hydra.callbacks", "hydra.sweeper.params")  # fmt: skip
_ODD_KEYS = (
    "",
    ".",
    "..",
    "a..b",
    ".seed",
    "seed.",
    "a/b",
    "schema/model",
    "model@foo",
    "@",
    "seed.x",
    "accel.none.x",
    "é",
    "_",
)
_WORDS = (
    "null", "true", "False", "nan", "-inf", "1e999", "0", "-1", "9" * 30, "9" * 5000, "1_000", "0.1", "auto",
    "a b", "a=b",
    "''", '""', "'a", '"', "\\", "\\'", "x" * 300, "x" * 5000, "é" * 200, "日本語", "\u202e", "\x1b[2J",
    "a\nb", "\t", "\udcff", "~/x",
    "~nobody/x", "../..", "/dev/null", "s3://bucket/a", "sqlite:///x", "http://u:p@h/", "%s", "{}", "[]",
    "normal(0.01)",
    "${seed}", "${optimizer}", "${model.name}", "${nothing}", "${..}", "${", "${}", "${oc.env:HOME}", "${oc.env:}",
    "${now:%Y}",
    "${msaccel.root:}", "${msaccel.cores:1}", "${oc.select:a}", "${oc.decode:'['}", "${hydra:run}", "${a:${b}}", "???",
    "!!python/object:os.system", "[" * 60, "[" * 400, "{a:" * 50,
)  # fmt: skip

_text = st.text("abn01_./-@=:,;$'\"\\ {}[]()~+éß☃\x1b\n", max_size=10)

keys = st.one_of(
    st.sampled_from(sorted(known_keys())),
    st.sampled_from(sorted(known_keys())),
    st.sampled_from(_CHOICES),
    st.sampled_from((*_HYDRA, *_ODD_KEYS, *ALIASES)),
    _text,
)
_scalars = st.one_of(
    st.sampled_from(_OPTIONS),
    st.sampled_from(_WORDS),
    st.integers(-3, 40).map(str),
    st.floats().map(str),
    _text,
    _text.map(lambda text: "'" + text.replace("'", "\\'") + "'"),
)


def _nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    items = st.lists(inner, max_size=3).map(",".join)
    pairs = st.lists(st.tuples(st.one_of(keys, inner), inner).map(":".join), max_size=3).map(",".join)
    calls = st.sampled_from(
        (
            "choice",
            "range",
            "interval",
            "glob",
            "int",
            "str",
            "bool",
            "float",
            "sort",
            "shuffle",
            "tag",
            "extend_list",
            "f",
        )
    )
    return st.one_of(
        items.map("[{}]".format),
        pairs.map("{{{}}}".format),
        st.tuples(calls, items).map(lambda call: f"{call[0]}({call[1]})"),
        items,
    )


values = st.recursive(_scalars, _nested, max_leaves=6)
_RIGHT = (
    "seed=1", "train.epochs=9", "loss_scale.mode=dynamic", "model=mlp", "model=resnet50", "data=synthetic",
    "data=cifar10", "data=imagenet", "accel=accum", "accel=[accum,clip]", "accel=dimreduce", "device=cpu4",
    "device=ascend16", "optimizer=adam", "schedule=step", "experiment=resnet50_adasum",
)  # fmt: skip
_settings = st.builds("{}{}={}".format, st.sampled_from(("", "", "", "", "+", "++", "~")), keys, values)
_plausible = st.builds(
    "{}={}".format,
    st.sampled_from(sorted(known_keys())),
    st.sampled_from(
        ("0", "1", "2", "8", "100000", "0.5", "1e-3", "true", "null", "auto", "none", "[0.5,2]", "/tmp", "0,1")
    ),
)
overrides = st.one_of(
    _plausible,
    _plausible,
    _settings,
    _settings,
    st.builds("{}{}".format, st.sampled_from(("", "~", "-", "+")), keys),
    st.text(max_size=20),
)
command_lines = st.tuples(
    st.booleans(),
    st.tuples(st.lists(st.sampled_from(_RIGHT), max_size=3), st.lists(overrides, min_size=1, max_size=2)).map(
        lambda parts: [*parts[0], *parts[1]]
    ),
)


def faults(several: bool, typed: list[str]) -> list[str]:
    """The sentences about a command line by the checks that `run.py` makes of settings; none if nothing is wrong."""
    compose.register()
    presets.register()
    overrides = compose.readable(typed)
    if wrong := problems(overrides):
        return wrong
    try:
        if not several:
            config = compose.from_overrides(overrides)
            return [*refusals(config), *without_effect(config, overrides)]
        with initialize_config_dir(str(CONF), version_base="1.3"):
            loader = GlobalHydra.instance().config_loader()
            with compose.composing():
                composed = loader.load_configuration("config", overrides, RunMode.MULTIRUN)
            jobs, reasons = checked_jobs.checked_jobs(composed)
            reasons += [*search.refusals(composed), *submitit.refusals(composed)]
            return reasons or [said for config in jobs for said in refusals(config)]
    except UserError as error:
        return str(error).splitlines()
