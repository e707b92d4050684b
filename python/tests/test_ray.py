"""Kernels under Ray. Skipped where Ray is not installed."""

import sys

import numpy as np
import pytest

ray = pytest.importorskip("ray")
pytest.importorskip("ray.data")

import kernels_in_python as ten  # noqa: E402

import vyre.ray  # noqa: E402


@pytest.fixture(scope="module")
def cluster():
    paths = ":".join(path for path in sys.path if path)
    ray.init(num_cpus=2, include_dashboard=False, runtime_env={"env_vars": {"PYTHONPATH": paths}})
    yield
    ray.shutdown()


def test_batches_go_through_actors(cluster):
    data = ray.data.from_numpy(np.arange(4000, dtype=np.float32)).rename_columns({"data": "x"})
    data = data.map_batches(lambda batch: {"x": batch["x"], "y": batch["x"]}, batch_format="numpy")
    made = vyre.ray.map_batches(data, ten.saxpy.on("cpu"), ["x", "y"], "out", numbers={"alpha": 2.0}, batch_size=1000)
    rows = sorted((row["x"], row["out"]) for row in made.take_all())
    assert len(rows) == 4000 and all(out == 3 * x for x, out in rows)
