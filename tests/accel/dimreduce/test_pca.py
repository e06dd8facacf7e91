"""PCA against NumPy's singular value decomposition in float64, where it is hard, and within its memory."""

from __future__ import annotations

import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msaccel.accel.dimreduce import pca
from msaccel.accel.dimreduce.basis import Basis
from msaccel.accel.dimreduce.pca import principal
from msaccel.errors import CheckpointError, CombinationError
from tests.accel.dimreduce.conftest import rows_with, save


def analysed(rows: np.ndarray, components: int, width: int = pca.WIDTH) -> Basis:
    with tempfile.TemporaryDirectory() as folder:
        return principal(save(Path(folder), rows), components, width)


def reference(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Singular values and right singular vectors of the centred rows, all in float64."""
    exact = rows.astype(np.float64)
    _, deviations, right = np.linalg.svd(exact - exact.mean(axis=0), full_matrices=False)
    return deviations, right


def assert_is_pca(found: Basis, rows: np.ndarray, tolerance: float = 1e-5) -> None:
    """Orthonormal rows, along which the data have the largest variances there are, and no covariance."""
    matrix, exact = found.matrix.astype(np.float64), rows.astype(np.float64)
    deviations = reference(rows)[0][: len(matrix)]
    assert found.matrix.dtype == np.float32
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(len(matrix)), atol=tolerance)
    np.testing.assert_allclose(np.array(found.variance) * (len(rows) - 1), deviations**2, rtol=tolerance)
    scores = (exact - exact.mean(axis=0)) @ matrix.T
    unexpected = scores.T @ scores - np.diag(deviations**2)
    assert np.abs(unexpected).max() <= tolerance * deviations[0] ** 2


def assert_same_directions(found: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    turned = np.sign((found * expected).sum(axis=1))[:, None]
    np.testing.assert_allclose(found, turned * expected, atol=tolerance)


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(3, 12),
    size=st.integers(1, 300),
    exponent=st.integers(-6, 6),
    decay=st.floats(0, 1),
    offset=st.floats(-3, 3),
    width=st.integers(1, 400),
    seed=st.integers(0, 99),
)
def test_any_shape_and_scale(
    count: int, size: int, exponent: int, decay: float, offset: float, width: int, seed: int
) -> None:
    draw = np.random.default_rng(seed).standard_normal
    walk = draw((count, size)) * 10.0 ** (-decay * np.arange(count)[:, None] / 4) + offset * draw(size)
    rows = (10.0**exponent * walk).astype(np.float32)
    components = min(count - 1, size)
    found = analysed(rows, components, width)
    assert found.rank == components
    assert_is_pca(found, rows)
    assert found.explained == pytest.approx(1, rel=1e-6)
    assert found.total_variance == pytest.approx(rows.astype(np.float64).var(axis=0, ddof=1).sum(), rel=1e-9)


def test_the_directions_are_those_of_svd() -> None:
    rows = rows_with(np.geomspace(1, 1e-2, 12), 20, 3000)
    assert_same_directions(analysed(rows, 10).matrix, reference(rows)[1][:10], 1e-6)


@pytest.mark.parametrize("shape", ["decade by decade", "a cliff", "a plateau far below"])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_deviations_that_span_six_orders(shape: str, scale: float) -> None:
    deviations = {
        "decade by decade": np.geomspace(1, 1e-6, 13),
        "a cliff": np.r_[np.ones(6), np.geomspace(2e-6, 1e-6, 7)],
        "a plateau far below": np.r_[1, np.geomspace(1.5e-6, 1e-6, 12)],
    }[shape]
    rows = rows_with(scale * deviations, 40, 5000)
    found = analysed(rows, 13)
    assert_is_pca(found, rows)
    expected = reference(rows)[0]
    np.testing.assert_allclose(np.sqrt(np.array(found.variance) * 39), expected[:13], rtol=1e-6)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(exponent=st.floats(-9, -5), plateau=st.booleans(), seed=st.integers(0, 99))
def test_down_to_rounding_there_is_nothing_between_right_and_refused(exponent: float, plateau: bool, seed: int) -> None:
    smallest = 10.0**exponent
    deviations = np.r_[1, np.geomspace(2, 1, 9) * smallest] if plateau else np.geomspace(1, smallest, 10)
    rows = rows_with(deviations, 30, 1000, seed)
    try:
        found = analysed(rows, 10)
    except CombinationError as error:
        assert smallest < 1e-7
        found = analysed(rows, int(str(error).split("the rank ")[1].split()[0]))
    assert_is_pca(found, rows)


def test_one_pass_over_the_gram_matrix_would_not_do() -> None:
    rows = rows_with(np.r_[1, np.geomspace(1.5e-6, 1e-6, 12)], 40, 5000).astype(np.float64)
    centred = rows - rows.mean(axis=0)
    values, vectors = np.linalg.eigh(centred @ centred.T)
    naive = (vectors[:, -13:] / np.sqrt(values[-13:])).T @ centred
    assert np.abs(naive @ naive.T - np.eye(13)).max() > 1e-5


def test_the_same_bytes_twice(tmp_path: Path) -> None:
    found = save(tmp_path, rows_with(np.geomspace(1, 1e-3, 9), 12, 4000))
    one, two = principal(found, 8, 512), principal(found, 8, 512)
    assert one.matrix.tobytes() == two.matrix.tobytes()
    assert (one.variance, one.total_variance, one.rank) == (two.variance, two.total_variance, two.rank)


@pytest.mark.parametrize("width", [1, 7, 64, 4096])
def test_the_width_of_blocks_changes_rounding_only(tmp_path: Path, width: int) -> None:
    found = save(tmp_path, rows_with(np.geomspace(1, 1e-3, 9), 12, 500))
    one, two = principal(found, 8, width), principal(found, 8)
    np.testing.assert_allclose(one.matrix, two.matrix, atol=1e-7)
    np.testing.assert_allclose(one.variance, two.variance, rtol=1e-12)


def test_signs(tmp_path: Path) -> None:
    rows = rows_with(np.geomspace(1, 0.1, 6), 9, 200)
    scores = (rows - rows.mean(axis=0)) @ analysed(rows, 6).matrix.T
    largest = np.abs(scores).argmax(axis=0)
    assert (scores[largest, np.arange(6)] > 0).all()
    np.testing.assert_allclose(analysed(-rows, 6).matrix, -analysed(rows, 6).matrix, atol=1e-6)


@pytest.mark.parametrize("width", [1, 3, 100])
def test_the_sign_of_two_snapshots_is_no_matter_of_rounding(width: int) -> None:
    rows = np.random.default_rng(0).standard_normal((2, 50)).astype(np.float32)
    towards_the_first = (rows[0] - rows[1]) / np.linalg.norm(rows[0] - rows[1])
    np.testing.assert_allclose(analysed(rows, 1, width).matrix[0], towards_the_first, atol=1e-6)


DEFICIENT = {
    "fewer snapshots": (lambda: rows_with(np.ones(5), 6, 100), 5),
    "fewer weights": (lambda: rows_with(np.ones(3), 9, 3), 3),
    "on a plane": (lambda: rows_with(np.array([1, 0.5]), 12, 1000), 2),
    "on a plane far from zero": (lambda: 100 + rows_with(np.array([1, 0.5]), 12, 1000), 2),
    "each of them twice": (lambda: np.repeat(rows_with(np.geomspace(1, 0.1, 4), 5, 100), 2, axis=0), 4),
    "all the same": (lambda: np.ones((9, 100), np.float32), 0),
    "all zero": (lambda: np.zeros((9, 100), np.float32), 0),
    "only one": (lambda: np.ones((1, 100), np.float32), 0),
}


@pytest.mark.parametrize(("make", "rank"), DEFICIENT.values(), ids=DEFICIENT.keys())
@pytest.mark.parametrize("scale", [2.0**-20, 1.0, 2.0**20])
def test_a_rank_that_is_too_small(make, rank: int, scale: float) -> None:
    rows = (scale * make()).astype(np.float32)
    with pytest.raises(CombinationError) as error:
        analysed(rows, rank + 1)
    message = str(error.value)
    assert "\n" not in message and f"the rank {rank} " in message and f"components={rank + 1} " in message
    assert "accel.dimreduce.components" in message and "accel.dimreduce.snapshot.count" in message
    if rank:
        assert_is_pca(analysed(rows, rank), rows)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite(value: float) -> None:
    rows = rows_with(np.ones(5), 8, 100)
    rows[3, 42] = value
    with pytest.raises(CheckpointError, match=r"update-0000000003.*not all finite.*accel\.dimreduce\.snapshots"):
        analysed(rows, 4)


def test_a_changed_snapshot_is_noticed(tmp_path: Path) -> None:
    found = save(tmp_path, rows_with(np.ones(5), 8, 100))
    with found[2].path.open("r+b") as file:
        file.seek(-4, 2)
        file.write(b"\0\0\0\0")
    with pytest.raises(CheckpointError, match="are not those it was written with"):
        principal(found, 4)


def test_where_it_came_from(tmp_path: Path) -> None:
    found = save(tmp_path, rows_with(np.ones(5), 8, 100))
    basis = principal(found, 4)
    assert basis.snapshots == tuple(snapshot.digest for snapshot in found)
    assert basis.layout == found[0].layout and basis.rank == 5


def test_memory(tmp_path: Path) -> None:
    """Beside P a few blocks, whatever N·M is; NumPy tells tracemalloc what it allocates."""
    count, size, components, width = 24, 500_000, 4, 4096
    draw = np.random.default_rng(0)
    found = save(tmp_path, np.stack([draw.standard_normal(size, dtype=np.float32) for _ in range(count)]))
    tracemalloc.start()
    try:
        matrix = principal(found, components, width).matrix
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < matrix.nbytes + 40 * count * width + 2**21 < count * size * 4 / 2
