"""Kernels under Ray. What needs a cluster is skipped where Ray is not installed."""

import sys

import numpy as np
import pytest

import kernels_in_python as ten
import vyre.ray


def test_a_worker_makes_a_column_of_others():
    pack = vyre._vyre.export_pack()[0]
    worker = vyre.ray.Worker(ten.saxpy.on("cpu"), ["x", "y"], "out", "float32", pack, {"alpha": 2.0})
    x = np.arange(10, dtype=np.float32)
    made = worker({"x": x, "y": x + 1, "other": x})
    np.testing.assert_array_equal(made["out"], 3 * x + 1)
    assert set(made) == {"x", "y", "other", "out"} and worker.metrics()["dispatches"] > 0
    empty = np.zeros(0, np.float32)
    assert worker({"x": empty, "y": empty})["out"].size == 0
    with pytest.raises(vyre.errors.InvalidUse, match="float64"):
        worker({"x": x.astype(float), "y": x})


@pytest.fixture(scope="module")
def ray():
    ray = pytest.importorskip("ray")
    pytest.importorskip("ray.data")
    paths = ":".join(path for path in sys.path if path)
    ray.init(num_cpus=4, include_dashboard=False, runtime_env={"env_vars": {"PYTHONPATH": paths}})
    yield ray
    ray.shutdown()


def test_batches_go_through_actors(ray):
    data = ray.data.from_items([{"x": np.float32(i), "y": np.float32(i)} for i in range(4000)])
    made = vyre.ray.map_batches(data, ten.saxpy.on("cpu"), ["x", "y"], "out", numbers={"alpha": 2.0}, batch_size=1000)
    rows = made.take_all()
    assert len(rows) == 4000 and all(row["out"] == 3 * row["x"] for row in rows)
