"""What is suggested for a key that does not exist: always keys that do, and the typed value where it fits."""

import pytest

from msaccel.config.bounds import bad_values
from msaccel.config.compose import from_overrides
from msaccel.config.suggestions import ALIASES, known_keys, write_instead
from msaccel.errors import ConfigError


@pytest.mark.parametrize(
    ("typed", "instead"),
    [
        ("optimizer.learning_rate=0.1", "write optimizer.lr=0.1"),
        ("lr=0.1", "write optimizer.lr=0.1"),
        ("lr=fast", "write optimizer.lr"),
        ("train.epoch=3", "write train.epochs=3"),
        ("epochs=1.5", "write train.epochs"),
        ("bs=64", "write train.batch_size=64"),
        ("batch_size=64", "write train.batch_size=64"),
        ("wd=1e-4", "write optimizer.weight_decay=1e-4"),
        ("momentum=0.9", "write optimizer.momentum=0.9"),
        ("nesterov=true", "write optimizer.nesterov=true"),
        ("milestones=[0.5]", "write schedule.milestones=[0.5]"),
        ("resnet18=1", "write model=resnet50 model.depth=18"),
        ("resnet50=", "write model=resnet50"),
        ("mnist=", "write data=mnist"),
        ("gpu=1", "write device=gpu"),
        ("seeds=4", "write seed=4"),
        ("name=mine", "write tracking.name=mine"),
        ("mlflow.tracking_uri=x", "write tracking.uri=x"),
        ("train_batch_size=64", "write train.batch_size=64"),
        ("workers=4", "write data.workers=4"),
        ("threads=4", "write device.threads=4"),
        ("modle=lenet", "write model=lenet"),
        ("dataset=svhn", "write data"),
        ("accel.steps=8", "write accel.freeze.steps or accel.accum.steps"),
        ("classes=5", "write model.classes or data.classes"),
        ("mode=x", "write loss_scale.mode or accel.clip.mode"),
        ("warmup_epochs=0.5", "write schedule.unit=epochs schedule.warmup=0.5"),
        ("clip_norm=1", "write accel=clip accel.clip.max_norm=1"),
        ("train.gradient_accumulation_steps=8", "write accel=accum accel.accum.steps=8"),
        ("xyzzy=1", "python run.py --help lists all keys"),
    ],
)
def test_suggestions(typed: str, instead: str) -> None:
    key, _, value = typed.partition("=")
    assert write_instead(key, value) == instead


def test_every_alias_names_a_key_or_an_option() -> None:
    keys = known_keys()
    for words in {*ALIASES.values()}:
        *settings, last = words.split()
        settings += [last] if "=" in last else []
        assert last.partition("=")[0] in keys and not (settings and bad_values(from_overrides(settings)))


@pytest.mark.parametrize("last", sorted({key.split(".")[-1] for key in known_keys()}))
def test_the_last_part_of_a_key_suggests_keys(last: str) -> None:
    for word in (last, f"{last}s", last[:-1], f"train.{last}"):
        for setting in write_instead(word).removeprefix("write ").replace(" or ", ", ").split(", "):
            assert setting in known_keys() or "=" in setting or setting.startswith("python run.py --help")


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("model=resnet34", "model=resnet34 does not exist; write model=resnet50 model.depth=34."),
        ("resnet18", "resnet18 cannot be read; write model=resnet50 model.depth=18."),
        ("mnist", "mnist cannot be read; write data=mnist."),
        ("data=glob([null])", "data=glob([null]) cannot be read; write names without quotes"),
        ("+accel.none.x=1", "accel.none.x is not a key"),
        ("accel={accum:5}", "accel.accum has no effect here; it belongs to accel=accum"),
    ],
)
def test_sentences(override: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        from_overrides([override])
    assert str(refused.value).startswith(said)
