"""What cannot be right ends in one sentence and exit code 2, before anything is made."""

import os
import re
import subprocess
from pathlib import Path
from unittest import mock

import pytest

from msaccel.accel import methods
from tests.fuzz.overrides import faults
from tests.running import Store, soak

VALUES = {
    "unknown key": ("train.epoch=3", "train.epoch is not a key; write train.epochs=3."),
    "unknown group": ("modle=lenet", "modle is not a key"),
    "unknown key added": ("+train.foo=1", "train.foo is not a key"),
    "key of another option": ("schedule.gamma=0.1", "schedule.gamma has no effect here; it belongs to schedule=step"),
    "key of a method not in use": (
        "accel.accum.steps=3",
        "accel.accum.steps has no effect here; it belongs to accel=accum",
    ),
    "unknown option": ("model=alexnet", "model=alexnet does not exist; write model= with one of airbench, gpt, lenet,"),
    "unknown method": (
        "accel=warp",
        f"with one of {', '.join(sorted(['none', *methods()]))}.",
    ),
    "unknown optimizer": (
        "optimizer=lamp",
        "with one of adam, adamw, lamb, lars, lion, momentum, muon, schedulefree, sgd, shampoo.",
    ),
    "unknown recipe": ("experiment=foo", "grad_accum_lenet"),
    "text for a number": ("train.batch_size=many", "train.batch_size=many has the wrong type"),
    "fraction for a count": ("train.epochs=1.5", "train.epochs=1.5 has the wrong type"),
    "value for a group of keys": ("train=3", "train=3 has the wrong type"),
    "no steps": ("accel=accum accel.accum.steps=0", "accel.accum.steps=0 is out of range (at least 2)"),
    "one step does nothing": ("accel=accum accel.accum.steps=1", "accel=none to accumulate nothing"),
    "no epochs": ("train.epochs=0", "train.epochs=0 is out of range (at least 1)"),
    "no samples": ("train.batch_size=0", "train.batch_size=0 is out of range"),
    "negative rate": ("optimizer.lr=-0.1", "optimizer.lr=-0.1 is out of range"),
    "rate that is no number": ("optimizer.lr=nan", "optimizer.lr=nan is out of range"),
    "rate without end": ("optimizer.lr=inf", "optimizer.lr=inf is out of range"),
    "momentum of one": ("optimizer.momentum=1", "optimizer.momentum=1.0 is out of range (at least 0 and below 1)"),
    "negative seed": ("seed=-1", "seed=-1 is out of range"),
    "whole set for validation": ("data.val_fraction=1", "data.val_fraction=1.0 is out of range"),
    "initialisation": (
        "model.init=gauss",
        "model.init=gauss is not understood; write model.init=default or normal(0.01).",
    ),
    "logging never": ("tracking.every=0", "tracking.every=0 is out of range"),
    "logging at null": ("tracking.every=null", "tracking.every=null does not exist; write tracking.every=auto or 100."),
    "accumulation of null": (
        "accel=dimreduce accel.dimreduce.accum_steps=null",
        "accel.dimreduce.accum_steps=null does not exist; write accel.dimreduce.accum_steps=auto or 32.",
    ),
    "Adam without a mean": (
        "optimizer=adam optimizer.beta1=0",
        "optimizer.beta1=0.0 is out of range (above 0 and below",
    ),
    "Nesterov without momentum": (
        "optimizer.momentum=0 optimizer.nesterov=true",
        "optimizer.nesterov=true has no effect with optimizer.momentum=0; leave one of them out.",
    ),
    "a rank table for virtual ranks": (
        "device=ascend8 device.simulate=always device.rank_table=/no/such.json",
        "device.rank_table=/no/such.json has no effect with device.simulate=always, which runs in one process",
    ),
    "logging sometimes": (
        "tracking.every=often",
        "tracking.every=often does not exist; write tracking.every=auto or 100.",
    ),
    "evaluating after nothing": ("train.eval_every=0", "train.eval_every=0 is out of range (at least 0.001)"),
    "depth": (
        "model=resnet50 model.depth=19",
        "model.depth=19 does not exist; write model.depth=18 or 34 or 50 or 101 or 8 or 20 or 32 or 44 or 56.",
    ),
    "norm": ("model=resnet50 model.norm=layer", "write model.norm=batch or group."),
    "tiny image": ("model=resnet50 model.image_size=4", "model.image_size=4 is out of range (at least 8)"),
    "key of another network": ("model.depth=18", "model.depth has no effect here; it belongs to model=resnet50"),
    "reduction": ("accel=accum accel.accum.reduction=max", "write accel.accum.reduction=mean or sum."),
    "none with others": ("accel=[none,accum]", "accel names none together with accum"),
    "several values": ("seed=0,1", "seed=0,1 names several values; write run.py -m"),
    "unreadable": ("train.epochs=[", "train.epochs=[ cannot be read"),
    "clip at zero": ("accel=clip accel.clip.max_norm=0", "accel.clip.max_norm=0.0 is out of range"),
    "precision": ("precision=fp8", "write precision=fp32 or fp16 or bf16."),
    "nested key": ("accel=dimreduce accel.dimreduce.pca.pat=x", "write accel.dimreduce.pca.path=x."),
    "newline in a value": ("model.init=a\nb", r"model.init=a\nb cannot be read"),
    "no method chosen": (
        "accel=null",
        "accel=null names no option; write accel= with one of none, lessbn, resize, freeze,",
    ),
    "no network chosen": ("model=null", "model=null names no option; write model= with one of airbench, gpt, lenet,"),
    "no device chosen": ("device=null", "device=null names no option; write device= with one of cpu, cpu4,"),
    "a number for a recipe": ("experiment=5", "experiment=5 names no option"),
    "a list within a list": ("accel=[accum,[clip]]", "accel=[accum,[clip]] names no option"),
    "a method twice": ("accel=[accum,accum]", "accel=[accum,accum] names a method twice"),
    "a number for a method": ("accel=accum accel.accum=5", "accel.accum=5 has the wrong type, since accel.accum holds"),
    "keys deleted": ("~train", "~train deletes a key, and a job needs all of them"),
    "no key": ("=5", "=5 has no key; write key=value."),
    "no value": ("seed", "seed has no value; write seed= with one."),
    "name of another network": (
        "model.name=resnet50",
        "model.name is set by the choice of model; write model=resnet50.",
    ),
    "name of no device": (
        "device.name=zzz",
        "device.name is set by the choice of device; write device= with one of cpu,",
    ),
    "artifacts on a server": ("tracking.artifacts=s3://bucket/a", "tracking.artifacts=s3://bucket/a is no folder"),
    "true for a number": (
        "tracking.every=true",
        "tracking.every=True does not exist; write tracking.every=auto or 100.",
    ),
    "a long name of a folder": (f"data.root=/tmp/{'a' * 300}", "has a name of more than 255 bytes in it"),
    "a long name of a job's folder": (f"hydra.run.dir=/tmp/{'a' * 300}", "has a name of more than 255 bytes in it"),
    "a long name of a database": (
        f"tracking.uri=sqlite:////tmp/{'a' * 300}",
        "has a name of more than 255 bytes in it",
    ),
    "a group of keys for a number": ("seed=${optimizer}", "has the wrong type; write seed= with a whole number."),
    "a value of a megabyte": (f"model.init={'a' * 100_000}", "has 100000 characters; write at most 4000."),
}
COMBINATIONS = {
    "no end": ("train.epochs=null", "train.epochs=null leaves the job without an end"),
    "batch larger than the data": ("train.batch_size=70000", "more than the 60000 training samples"),
    "window larger than the data": (
        "data.limit_train=100 accel=accum",
        "makes a global batch of 128 (32 × 4 × 1), more than the 100 training samples",
    ),
    "limit larger than the data": (
        "data.limit_train=60001",
        "data.limit_train=60001 is more than the 60000 samples of data=mnist",
    ),
    "transform of another network": ("model=mlp data.transform=lenet32", "write data.transform=mlp28"),
    "too few classes": ("model.classes=5", "model.classes=5 is fewer than the 10 classes"),
    "steps counted twice": (
        "accel=accum accel.accum.reduction=sum accel.accum.lr_scale=linear",
        "would count the 4 steps twice",
    ),
    "bfloat16 on a GPU": (
        "precision=bf16 device=gpu device.simulate=never",
        "precision=bf16 is computed by msaccel's operators for the CPU, not on device=gpu",
    ),
    "bfloat16 without operators for it": (
        "precision=bf16 kernels.use=unfold",
        "precision=bf16 has no effect with kernels.use=unfold; write kernels.use=auto or precision=fp32.",
    ),
    "bfloat16 emulated for nothing": (
        "kernels.emulate_bf16=true",
        "kernels.emulate_bf16 has no effect with precision=fp32; leave it out.",
    ),
    "two rules for overflows": (
        "loss_scale.mode=dynamic train.on_nonfinite=skip",
        "train.on_nonfinite=skip has no effect",
    ),
    "flip without augmentation": (
        "model=resnet50 data=cifar10 data.augment=false data.flip=alternating",
        "data.flip has no effect with data.augment=false; leave it out.",
    ),
    "edge without padding": (
        "model=resnet50 data=cifar10 data.padding=0 data.pad_mode=reflect",
        "data.pad_mode has no effect with data.padding=0; leave it out.",
    ),
    "views of a text": ("model=gpt data=shakespeare train.tta=flip", "write train.tta=none."),
    "widths of two groups": ("model=airbench data=synthetic model.widths=[64,256]", "write model.widths=[64,256,256]."),
    "scale without scaling": ("loss_scale.init=8", "loss_scale.init has no effect with loss_scale.mode=none"),
    "growth of a static scale": (
        "loss_scale.mode=static loss_scale.growth_interval=9",
        "loss_scale.growth_interval has no effect with loss_scale.mode=static",
    ),
    "PowerSGD in a stage that was another job": (
        "accel=[powersgd,dimreduce] device=cpu4 train.epochs=2 accel.dimreduce.from_run=abc",
        "accel=powersgd acts in stage 1 of accel=dimreduce, which was another job; leave out powersgd.",
    ),
    "rate of no first stage": (
        "accel=dimreduce train.epochs=2 optimizer.lr=0.1 accel.dimreduce.from_run=abc",
        "optimizer.lr has no effect with accel=dimreduce without a first stage",
    ),
    "scale of one": (
        "loss_scale.mode=static loss_scale.init=1",
        "loss_scale.init=1 with loss_scale.mode=static scales",
    ),
    "Adasum of one rank": ("accel=adasum", "accel=adasum needs at least two parts and device=cpu has one rank"),
    "Adasum of one server": ("accel=adasum device=cpu4", "would only average; write accel.adasum.scope=rank"),
    "less batch norm without blocks": (
        "accel=lessbn",
        "accel=lessbn removes norms of residual blocks, and model=lenet has none; write model=resnet50 or leave out",
    ),
    "less batch norm of groups": (
        "accel=lessbn model=resnet50 data=synthetic model.norm=group",
        "accel=lessbn removes batch norms, and model.norm=group has none; write model.norm=batch or leave out lessbn.",
    ),
    "less batch norm of nothing": (
        "accel=lessbn model=resnet50 data=synthetic accel.lessbn.norms=false accel.lessbn.last_layer=false",
        "accel=lessbn changes nothing with accel.lessbn.norms=false and accel.lessbn.last_layer=false",
    ),
    "windows that grow in a number of updates": (
        "accel=accum accel.accum.grow_at=[0.5] train.max_updates=20",
        "train.max_updates=20 with accel.accum.grow_at=[0.5] would count updates of several sizes; "
        "write train.epochs=10 train.max_updates=null.",
    ),
    "windows that grow at a number": (
        "accel=accum accel.accum.grow_at=0.5",
        "accel.accum.grow_at=0.5 has the wrong type; write accel.accum.grow_at=[0.5].",
    ),
    "windows that grow backwards": (
        "accel=accum accel.accum.grow_at=[0.5,0.3]",
        "accel.accum.grow_at=[0.5,0.3] has to name shares of the job that rise, such as accel.accum.grow_at=[0.3,",
    ),
    "windows that grow nowhere": ("accel=accum accel.accum.grow_at=[]", "accel.accum.grow_at=[] has to name shares"),
    "windows that grow too often": (
        "accel=accum accel.accum.grow_at=[0.4,0.5] accel.accum.growth=2",
        "accel.accum.grow_at=[0.4,0.5] leaves a window without an epoch of train.epochs=3; write train.epochs=10 or",
    ),
    "windows that grow in two stages": (
        "accel=[accum,dimreduce] accel.accum.grow_at=[0.5] train.epochs=6",
        "accel=dimreduce with accel.accum.grow_at=[0.5]: each divides the job into stages of its own; leave out one",
    ),
    "growth at no time": (
        "accel=accum accel.accum.growth=2",
        "accel.accum.growth has no effect with accel.accum.grow_at=null; leave it out.",
    ),
    "several sizes of images in LeNet": (
        "accel=resize",
        "accel=resize trains on images of several sizes, and model=lenet reads only samples of shape 1 × 32 × 32; "
        "write model=resnet50 or leave out resize.",
    ),
    "several sizes of texts": (
        "accel=resize model=gpt data=shakespeare",
        "accel=resize trains on images of several sizes, and model=gpt reads only samples of shape 64; ",
    ),
    "smaller images in the only epoch": (
        "accel=resize model=resnet50 data=synthetic train.epochs=1",
        "accel=resize trains on smaller images before the last epoch, and this job has one epoch; "
        "write train.epochs=5 train.max_updates=null, or leave out resize.",
    ),
    "images that are hardly smaller": (
        "accel=resize model=resnet50 data=synthetic model.image_size=32 accel.resize.initial_scale=0.99",
        "accel.resize.initial_scale=0.99 with accel.resize.size_increment=4 makes images of 32 × 32 no smaller; "
        "write accel.resize.initial_scale=0.5 accel.resize.size_increment=1.",
    ),
    "images that never grow": (
        "accel=resize model=resnet50 data=synthetic accel.resize.delay_fraction=0.9",
        "accel.resize.delay_fraction=0.9 and accel.resize.finetune_fraction=0.2 are more than the whole job together; "
        "write accel.resize.finetune_fraction=0.1 or less.",
    ),
    "centralization and clipping": (
        "accel=[clip,centralize]",
        "accel=centralize and accel=clip both fill the slot 'transform' of an update; keep one of them.",
    ),
    "centralization of convolutions": (
        "accel=centralize model=mlp accel.centralize.layers=convolutions",
        "accel.centralize.layers=convolutions finds none in model=mlp; write accel.centralize.layers=all.",
    ),
    "PowerSGD of one rank": ("accel=powersgd", "accel=powersgd needs at least two ranks and device=cpu has one"),
    "PowerSGD and Adasum": (
        "accel=[powersgd,adasum] device=cpu4 accel.adasum.scope=rank",
        "accel=adasum and accel=powersgd both fill the slot 'reduce' of an update; keep one of them.",
    ),
    "PowerSGD and frozen layers": (
        "accel=[powersgd,freeze] device=cpu4",
        "accel=powersgd with accel=freeze: it keeps state for every weight, which frozen ones would leave behind",
    ),
    "local SGD of one rank": ("accel=localsgd", "accel=localsgd needs at least two ranks and device=cpu has one"),
    "local SGD in two slots": (
        "accel=[localsgd,sam] device=cpu4",
        "accel=localsgd and accel=sam both fill the slot 'reduce' of an update; keep one of them.",
    ),
    "average of local weights": (
        "accel=[localsgd,average] device=cpu4",
        "accel=average with accel=localsgd would have to average over ranks whenever it looks at the weights",
    ),
    "dimension reduction of local weights": (
        "accel=[localsgd,dimreduce] device=cpu4 train.epochs=6",
        "accel=dimreduce with accel=localsgd would work on the weights of one rank where each has its own",
    ),
    "state of plain SGD": (
        "accel=localsgd accel.localsgd.state=average device=cpu4 optimizer=sgd",
        "accel.localsgd.state has no effect with optimizer=sgd, which keeps none",
    ),
    "local steps of an average": (
        "accel=localsgd device=cpu4 optimizer=schedulefree",
        "optimizer=schedulefree with accel=localsgd does not move each tensor by itself",
    ),
    "frozen layers of two optimizers": (
        "accel=freeze optimizer=muon",
        "optimizer=muon with accel=freeze cannot leave some weights out of an update; write optimizer=momentum",
    ),
    "Adasum of three": (
        "accel=adasum accel.adasum.scope=rank device=cpu4 device.ranks_per_server=3",
        "combines a power of two of parts and device=cpu4 has 3",
    ),
    "Adasum of some layers": (
        "accel=[freeze,adasum] accel.adasum.scope=rank device=cpu4",
        "accel=adasum with accel=freeze: it keeps state for every weight",
    ),
    "subspace of some layers": (
        "accel=[freeze,dimreduce] train.epochs=9",
        "accel=dimreduce with accel=freeze: it steps all weights",
    ),
    "share of a draw": (
        "accel=freeze accel.freeze.form=boost accel.freeze.share=0.3",
        "accel.freeze.share has no effect with accel.freeze.form=boost",
    ),
    "real ranks": ("device=ascend16 device.simulate=never", "device=ascend16 cannot be used here"),
    "a single NPU": ("device=ascend1", "and one rank has nothing to simulate; use device=cpu."),
    "server without address": ("device=cpu2x2 device.server_rank=1", "write device.master=HOST:PORT too"),
    "address without server": ("device=cpu2x2 device.master=127.0.0.1:8118", "write device.server_rank=0"),
    "third of two servers": (
        "device=cpu2x2 device.server_rank=2 device.master=127.0.0.1:8118",
        "device.server_rank=2 is beyond the 2 servers of device=cpu2x2",
    ),
    "one job as a sweep": ("sweep.resume=true", "sweep.resume=true goes on with a sweep; write -m, or resume=latest"),
    "attempts of one server of two": (
        "device=cpu2x2 device.server_rank=0 device.master=127.0.0.1:8118 sweep.retries=1",
        "sweep.retries=1 has no effect with device.server_rank",
    ),
    "servers of a simulation": (
        "device=cpu2x2 device.simulate=always device.server_rank=0 device.master=127.0.0.1:8118",
        "device.server_rank=0 has no effect with device.simulate=always",
    ),
    "a server of one": (
        "device=cpu4 device.server_rank=0",
        "device.server_rank=0 has no effect with the single server",
    ),
    "table without NPUs": ("device=cpu4 device.rank_table=t.json", "device.rank_table has no effect with device=cpu4"),
    "nothing to simulate": ("device.simulate=always", "has nothing to simulate on one CPU rank"),
    "port without a next": (
        "device=cpu2x2 device.server_rank=0 device.master=127.0.0.1:65535",
        "and the next port are no two ports",
    ),
    "no first stage": ("accel=dimreduce train.epochs=2", "leaves nothing of train.epochs=2 for stage 1"),
    "dimension reduction by updates": ("accel=dimreduce train.max_updates=100", "would count updates of two sizes"),
    "too few snapshots": (
        "accel=dimreduce train.epochs=6 accel.dimreduce.snapshot.count=32",
        "accel.dimreduce.snapshot.count=32 cannot give accel.dimreduce.components=32 directions",
    ),
    "Adasum of no gradient": ("accel=[adasum,dimreduce] device=ascend16 train.epochs=6", "is no gradient of the loss"),
    "two averages": (
        "optimizer=schedulefree accel=average",
        "optimizer=schedulefree and accel=average both fill the slot 'evaluate' of an update; keep one of them.",
    ),
    "schedule of schedule-free": (
        "optimizer=schedulefree schedule=cosine",
        "write schedule=constant, with schedule.warmup=0.05 for a warm-up.",
    ),
    "Adasum of steps that are no weights": (
        "optimizer=schedulefree accel=adasum accel.adasum.scope=rank device=cpu4",
        "moves none but the trained ones; write accel.adasum.apply=gradient.",
    ),
    "subspace without an average": (
        "optimizer=schedulefree accel=dimreduce train.epochs=6",
        "moves none but the trained ones; write optimizer=momentum.",
    ),
    "moments of SGD": (
        "optimizer=schedulefree optimizer.form=sgd optimizer.beta2=0.9",
        "optimizer.beta2 has no effect with optimizer.form=sgd; leave it out.",
    ),
    "Muon at rest": ("optimizer=muon optimizer.lr=0", "optimizer.lr=0.0 is out of range (above 0)"),
    "sum is no gradient": (
        "accel=[accum,dimreduce] accel.accum.reduction=sum train.epochs=6",
        "accel.accum.reduction=sum with accel=dimreduce",
    ),
    "matrix without weights": (
        "accel=dimreduce train.epochs=2 accel.dimreduce.pca.path=p.safetensors",
        "accel.dimreduce.pca.path has no weights to start from",
    ),
    "stop without target": ("train.stop_at_target=true", "train.stop_at_target=true has no target"),
    "warm-up without end": ("schedule.warmup=1", "schedule.warmup=1 lies outside the job"),
    "decay inside the warm-up": (
        "schedule=trapezoid schedule.warmup=0.5 schedule.decay=0.6",
        "schedule.decay=0.6 begins before the warm-up ends",
    ),
    "milestone after the end": (
        "schedule=step schedule.unit=epochs schedule.milestones=[2,4]",
        "schedule.milestones=4",
    ),
    "empty validation split": (
        "data.limit_train=40 data.val_fraction=0.01",
        "leaves the training or the validation set empty",
    ),
    "shape the network cannot read": ("data=synthetic data.height=30", "model=lenet reads 1 × 32 × 32"),
    "size of another data set": (
        "model=resnet50 model.image_size=64",
        "model.image_size=64 does not fit data=mnist, whose images are 32 × 32 once transformed",
    ),
    "layout of other blocks": (
        "model=resnet50 model.depth=18 model.version=v1",
        "model.version=v1 has no effect with model.depth=18",
    ),
    "grey pictures for three channels": (
        "model=resnet50 data=synthetic data.channels=1",
        "model=resnet50 reads 3 × 224 × 224; write data.channels=3",
    ),
    "photographs from nowhere": (
        "model=resnet50 data=imagenet",
        "data=imagenet is not downloaded; write data.root=FOLDER",
    ),
    "colours for lenet": ("data=cifar10", "model=lenet cannot read data=cifar10"),
    "another size of CIFAR-10": (
        "model=resnet50 data=cifar10 model.image_size=64",
        "does not fit data=cifar10, whose images are 32 × 32",
    ),
    "transform of other pictures": (
        "model=resnet50 data=cifar10 data.transform=imagenet",
        "write data.transform=small",
    ),
    "pictures checked before": (
        "model=resnet50 data=imagenet data.root=/tmp data.format=mindrecord data.on_broken=skip",
        "data.on_broken=skip has no effect with data.format=mindrecord",
    ),
    "root that is not there": ("data.root=/no/such/folder", "data.root"),
}


CASES = {**VALUES, **COMBINATIONS}
# Some of each way in which `run.py` finds what is wrong, and all that it finds after the checks of the settings.
BY_PROCESS = (
    "unreadable", "newline in a value", "a long name of a job's folder",
    "unknown key", "unknown option", "several values", "text for a number",
    "artifacts on a server", "a group of keys for a number", "no steps", "a long name of a database",
    "one job as a sweep", "no end", "Adasum of one rank", "bfloat16 emulated for nothing",
    "real ranks", "a single NPU", "port without a next", "root that is not there",
)  # fmt: skip


def words(overrides: str) -> list[str]:
    return [overrides] if "\n" in overrides else overrides.split(" ")


OTHERS = tuple(case for case in CASES if case not in BY_PROCESS)


@pytest.mark.parametrize("case", OTHERS)
def test_one_sentence(case: str) -> None:
    overrides, phrase = CASES[case]
    with mock.patch.dict(os.environ):  # a password in an address goes there
        (said,) = faults(False, words(overrides))
    assert phrase in said
    assert re.fullmatch(r"[^\n]{10,400}[.\w]", said), "one line, one sentence"


@pytest.mark.parametrize("case", [*BY_PROCESS, *soak(*OTHERS)])
def test_one_sentence_and_nothing_made(store: Store, case: str) -> None:
    overrides, phrase = CASES[case]
    ended = store.run(*words(overrides))
    assert ended.returncode == (1 if case == "root that is not there" else 2)
    assert phrase in ended.stderr
    assert re.fullmatch(r"[^\n]{10,400}[.\w]\n", ended.stderr), "one line, one sentence"
    assert not (store.folder / "mlflow.db").exists()
    assert not list((store.folder / "jobs").glob("*")), "no folder of a job is left"


def test_two_wrong_values_are_both_named(store: Store) -> None:
    ended = store.run("optimizer.lr=-1", "train.batch_size=0")
    assert ended.returncode == 2
    assert [line.split("=")[0] for line in ended.stderr.splitlines()] == ["optimizer.lr", "train.batch_size"]


def test_a_wrong_value_in_any_job_stops_the_sweep_before_it_starts(store: Store) -> None:
    ended = store.run("-m", "seed=0,-1", "train.epochs=1,x")
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 2
    assert "seed=-1" in ended.stderr and "train.epochs=x" in ended.stderr
    assert list(store.folder.iterdir()) == []


@pytest.mark.parametrize(
    ("typed", "phrase"),
    [
        ("seed=range(0,3,0)", "seed=range(0,3,0) has no end"),
        ("seed=interval(0,1)", "seed=interval(0,1) is for hydra/sweeper=optuna"),
        ("seed=glob(*)", "the sweep has no jobs"),
        (f"hydra.sweep.dir=/tmp/{'a' * 300}", "has a name of more than 255 bytes in it"),
        (f"hydra.sweep.dir=/tmp/{'a/' * 1900}", "names more than 100 folders within each other"),
    ],
)
def test_a_sweep_of_no_jobs(store: Store, typed: str, phrase: str) -> None:
    ended = store.run("-m", typed)
    assert ended.returncode == 2 and phrase in ended.stderr
    assert re.fullmatch(r"[^\n]{10,400}[.\w]\n", ended.stderr) and list(store.folder.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "typed",
    [
        ("-m", "accel=adasum,dimreduce", "train.epochs=2"),
        ("-m", "accel=adasum", "seed=0,1", "hydra/launcher=joblib"),
        ("resume=latest",),
        ("resume=latest", "device=cpu2x2", "device.server_rank=1", "device.master=127.0.0.1:8118"),
        ("resume=0123456789abcdef0123456789abcdef",),
        ("data.root=/no/such/folder",),
        ("hydra/sweeper=optuna", "-m", "optimizer.lr=interval(0,1)"),
    ],
    ids=" ".join,
)
def test_no_folder_is_left(store: Store, typed: tuple[str, ...]) -> None:
    ended = store.run(*typed)
    assert ended.returncode in (1, 2) and "Traceback" not in ended.stderr
    assert not list((store.folder / "jobs").glob("*")), ended.stderr


def test_a_file_of_settings_that_makes_objects(store: Store) -> None:
    (store.folder / "mine" / "optimizer").mkdir(parents=True)
    (store.folder / "mine" / "optimizer" / "bad.yaml").write_text("lr: !!python/object/apply:os.mkdir [harm]\n")
    python, script, *overrides = store.command("optimizer=bad")
    command = [python, script, f"--config-dir={store.folder}/mine", *overrides]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=store.timeout, cwd=store.folder)
    assert ended.returncode == 2 and "bad.yaml, line 1: this is no YAML of settings" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1 and [path.name for path in store.folder.iterdir()] == ["mine"]


def test_a_pickle_is_not_read(store: Store) -> None:
    pickled = store.folder / "harm.pickle"
    pickled.write_bytes(b"cos\nmkdir\n(S'harm'\ntR.")
    python, script, *overrides = store.command()
    command = [python, script, f"--experimental-rerun={pickled}", *overrides]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=store.timeout, cwd=store.folder)
    assert ended.returncode == 2 and ended.stderr.startswith("--experimental-rerun reads a pickle")
    assert [path.name for path in store.folder.iterdir()] == ["harm.pickle"]


def test_a_flag_between_overrides(store: Store) -> None:
    ended = store.run("seed=1", "--resolve", "model=mlp")
    assert ended.returncode == 2
    assert ended.stderr == "model=mlp cannot be read there; write flags first, then all overrides.\n"


def test_a_traceback_is_shown_when_asked_for(store: Store) -> None:
    assert "Traceback" in store.run("train.foo=1", HYDRA_FULL_ERROR="1").stderr


def test_the_repository_stays_as_it_was(store: Store) -> None:
    before = set(Path(__file__).parents[2].glob("*"))
    store.run("train.foo=1")
    assert set(Path(__file__).parents[2].glob("*")) == before
