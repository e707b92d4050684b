"""Kernels under Ray. What needs a cluster is skipped where Ray is not installed."""

import sys
import time

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
    # What the actors counted and compiled comes home.
    assert sum(counted["dispatches"] for counted in vyre.ray.metrics().values()) >= 4
    assert vyre.ray.collect().pipelines >= 0
    assert vyre.ray.collect() == (0, 0, False)


def test_what_one_actor_compiled_no_other_does(ray):
    # Another text each time, so that no earlier run has left it in the cache.
    factor = time.time_ns() % 1_000_000
    kernel = vyre.wgsl(
        """@group(0) @binding(0) var<storage, read> x: array<f32>;
        @group(0) @binding(1) var<storage, read_write> out: array<f32>;
        @compute @workgroup_size(64) fn only_here(@builtin(global_invocation_id) id: vec3<u32>) {
            if id.x < arrayLength(&x) { out[id.x] = x[id.x] * FACTOR; }
        }""".replace("FACTOR", f"{factor}.25")
    ).on("cpu")
    data = ray.data.from_items([{"x": np.float32(i)} for i in range(2000)])

    def run():
        before = dict(vyre.ray.metrics())
        assert len(vyre.ray.map_batches(data, kernel, ["x"], "out", batch_size=500).take_all()) == 2000
        now = vyre.ray.metrics()
        return sum(counted["compiles"] for worker, counted in now.items() if worker not in before)

    assert run() > 0
    assert vyre.ray.collect().pipelines > 0
    assert run() == 0


def test_a_worker_of_another_version_says_so():
    with pytest.raises(RuntimeError, match="install the same everywhere"):
        vyre.ray.Worker(ten.saxpy, ["x"], "out", "float32", None, {}, "0.0.1")
