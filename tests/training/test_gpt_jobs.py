"""GPT in jobs: every method trains it, micro-batches and ranks add up, resumed jobs end in the same bits."""

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from msaccel.data.text import TextDataset
from msaccel.training.evaluation import Evaluator
from msaccel.training.job import load_data
from tests import reference
from tests.conftest import assert_same_bits
from tests.models.test_gpt import logits_of, weights_of
from tests.running import Store, soak
from tests.training.test_resume_exact import Job

pytestmark = pytest.mark.usefixtures("graph_mode")

WORDS = ["to", "be", "or", "not", "that", "is", "the", "question", "whether", "nobler", "in", "mind", "suffer"]
SIZES = ("model=gpt", "model.layers=1", "model.heads=2", "model.width=8", "model.block=8")
SMALL = (*SIZES, "data=shakespeare", "optimizer=adamw", "optimizer.lr=0.003")
TWO_RANKS = ("device=cpu4", "device.ranks_per_server=2", "device.simulate=always")
CLASSES = "model.classes=20"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text of 20 characters, 3,690 long."""
    chosen = random.Random(0).choices(WORDS, k=870)
    path = tmp_path_factory.mktemp("text") / "own.txt"
    path.write_text("\n".join(" ".join(chosen[row : row + 9]) for row in range(0, len(chosen), 9)))
    return path


@pytest.fixture
def train(file: Path, composed: Callable) -> TextDataset:
    samples = load_data(composed(*SMALL, CLASSES, f"data.root={file}")).train
    assert isinstance(samples, TextDataset)
    return samples


@pytest.fixture
def halves(train: TextDataset) -> list:
    """Of a batch of 12."""
    return [train.batch(np.arange(6), 0), train.batch(np.arange(6, 12), 0)]


def moved(parts, windows) -> list[np.ndarray]:
    """The gradient of an update without momentum at a rate of 1."""
    before = parts.weights()
    parts.update(windows, 1.0)
    return [old - new for old, new in zip(before, parts.weights(), strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_micro_batches_and_ranks_equal_the_large_batch(job, train: TextDataset, halves: list, dropout: float) -> None:
    plain = (*SIZES, CLASSES, "data=shakespeare", "optimizer=sgd", f"model.dropout={dropout}")
    expected = moved(job(*plain, "train.batch_size=12"), [[train.batch(np.arange(12), 0)]])
    accumulated = job(*plain, "train.batch_size=6", "accel=accum", "accel.accum.steps=2")
    assert reference.distance(moved(accumulated, [halves]), expected) <= 1e-5
    ranks = job(*plain, "train.batch_size=6", *TWO_RANKS)
    assert reference.distance(moved(ranks, [[half] for half in halves]), expected) <= 1e-5


@pytest.mark.slow
def test_clipping_adasum_and_loss_scale_do_what_their_formulas_say(job, halves: list) -> None:
    plain = (*SIZES, CLASSES, "data=shakespeare", "optimizer=sgd", "train.batch_size=6")
    first, second = (moved(job(*plain), [[half]]) for half in halves)
    bound = reference.norm(first) / 3
    clipped = moved(job(*plain, "accel=clip", f"accel.clip.max_norm={bound}"), [[halves[0]]])
    assert reference.distance(clipped, reference.clip(first, bound)) <= 1e-5
    both = job(*plain, *TWO_RANKS, "accel=adasum", "accel.adasum.scope=rank")
    assert reference.distance(moved(both, [[half] for half in halves]), reference.adasum_of([first, second])) <= 1e-5
    scaled = moved(job(*plain, "loss_scale.mode=static"), [[halves[0]]])
    assert reference.distance(scaled, first) <= 1e-6


def test_its_score_is_the_mean_over_all_characters(job, train: TextDataset) -> None:
    parts = job(*SIZES, CLASSES, "data=shakespeare")
    split = train.subset(np.arange(70))
    found = Evaluator(parts.network)(split)
    texts, labels = split.batch(np.arange(len(split)))
    logits = logits_of(weights_of(parts.network), texts, parts.config.model).reshape(labels.size, -1)
    assert found.loss == pytest.approx(reference.cross_entropy(logits, labels.ravel()), rel=1e-6)
    assert found.accuracy == pytest.approx((logits.argmax(1) == labels.ravel()).mean())


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [
        ("accel=[accum,clip]", "accel.accum.steps=2"),
        (*TWO_RANKS, "accel=adasum", "accel.adasum.scope=rank"),
        ("precision=fp16", "loss_scale.mode=dynamic"),
        *soak((), ("model.tied=false", "model.dropout=0.1"), ("kernels.use=unfold",)),
    ],
    ids=lambda overrides: " ".join(overrides) or "none",
)
def test_it_learns(job, train: TextDataset, overrides: tuple[str, ...]) -> None:
    parts = job(*SMALL, CLASSES, "train.batch_size=16", *overrides)
    losses = []
    for windows, _ in zip(parts.windows(train, len(train)), range(90), strict=False):
        signals = parts.update(windows, 0.01)
        losses.append(np.mean([tensor.asnumpy()[0] for tensor in signals.measured]))
    assert losses[0] == pytest.approx(np.log(20), abs=0.3)
    assert np.mean(losses[-5:]) < 0.8 * losses[0]


SHORT = ("data.limit_train=200", "train.epochs=2")
JOBS = {
    "accum, clip and dropout": (
        ("accel=[accum,clip]", "accel.accum.steps=2", "model.dropout=0.2", "train.epochs=2",
         "data.limit_train=200", "schedule=cosine", "schedule.warmup=0.1"), (8,),
    ),
    "dimension reduction": (
        ("data.limit_train=128", "train.epochs=4", "accel=[clip,dimreduce]", "accel.dimreduce.components=4",
         "accel.dimreduce.snapshot.count=5", "accel.dimreduce.accum_steps=2"), (13,),
    ),
    "sam, centralize and average": (
        (*SHORT, "accel=[sam,centralize,average]", "accel.average.start=0.3", "accel.average.every=1"), (15,)
    ),
    "freeze": ((*SHORT, "accel=[freeze,clip]", "accel.freeze.start=0.3"), (15,)),
    "adasum": ((*SHORT, *TWO_RANKS, "accel=adasum", "accel.adasum.scope=rank"), (8,)),
    "local sgd": ((*SHORT, *TWO_RANKS, "accel=localsgd", "accel.localsgd.every=2", "accel.localsgd.start=0.25"), (7,)),
}  # fmt: skip
OFTEN = ("accum, clip and dropout",)  # the others are soak tests


@pytest.mark.slow
@pytest.mark.parametrize("name", [*OFTEN, *soak(*(name for name in JOBS if name not in OFTEN))])
def test_a_resumed_job_ends_as_the_undisturbed_one(composed: Callable, file: Path, tmp_path: Path, name: str) -> None:
    overrides, kills = JOBS[name]
    given = (*SMALL, "train.batch_size=16", "tracking.every=3", f"data.root={file}", *overrides)
    through = Job(given, tmp_path / "through", composed)
    through.folder.mkdir()
    through.train({update: tmp_path / f"killed-{update}" for update in kills})
    named = {name for name, _, _ in through.client.points}
    assert {"eval/loss", "eval/bits_per_char", "eval/accuracy", "throughput/tokens_per_sec"} <= named
    for update in kills:
        resumed = Job(given, tmp_path / f"killed-{update}", composed)
        logged = {(name, step) for name, step, _ in through.client.points if step <= update}
        resumed.client.points = [point for point in through.client.points if point[:2] in logged]
        resumed.train({}, logged)
        assert resumed.points() == through.points()
        assert_same_bits(*[load_file(one.folder / "last.safetensors") for one in (resumed, through)])
        texts = [(one.folder / "sample.txt").read_text() for one in (resumed, through)]
        assert texts[0] == texts[1] and len(texts[0]) == 500


@pytest.mark.slow
def test_a_run_is_compared_scored_and_writes(
    store: Store, file: Path, saved_runs_in_forks: None, capfd: pytest.CaptureFixture[str]
) -> None:
    from msaccel.__main__ import main

    ended = store.run("-m", *SMALL, f"data.root={file}", "train.epochs=1", "accel=none,clip")
    assert ended.returncode == 0, ended.stderr
    assert "accuracy" in ended.stdout
    first, _ = store.runs()
    metrics = first.data.metrics
    assert metrics["eval/bits_per_char"] == pytest.approx(metrics["eval/loss"] / np.log(2))
    assert metrics["throughput/tokens_per_sec"] == pytest.approx(8 * metrics["throughput/samples_per_sec"])
    assert store.artifacts(first, "samples") == {"samples/sample.txt"} and not store.artifacts(first, "mistakes")
    assert first.data.tags["data"].startswith("text-")
    for command in (["eval"], ["sample", "--length", "20"], ["compare"]):
        ids = [] if command == ["compare"] else [first.info.run_id]
        assert main([*command, "--tracking-uri", store.uri, *ids]) == 0
    assert "Downloading" not in capfd.readouterr().err
    file.write_text(file.read_text().replace("e", "é"))
    for command in (["eval"], ["sample", "--length", "20"]):
        assert main([*command, "--tracking-uri", store.uri, first.info.run_id]) == 2
    assert capfd.readouterr().err.count("is not the data that the run was trained on") == 2
