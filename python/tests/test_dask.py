"""Kernels on Dask's arrays. Skipped where Dask is not installed."""

import numpy as np
import pytest

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

import kernels_in_python as ten  # noqa: E402

import vyre  # noqa: E402
import vyre.dask  # noqa: E402


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("dask"))
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, local_directory=folder) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def test_blocks_and_their_borders_on_all_workers(client):
    x = np.random.default_rng(3).random((90, 70), dtype=np.float32)
    blocks = da.from_array(x, chunks=(30, 35))
    heat = ten.heat.on("cpu")
    out = np.zeros_like(x)
    heat(x, out)
    # The border of the whole array keeps its values in the kernel, as the outermost elements of each block with its neighbours do.
    spread = vyre.dask.map_overlap(heat, blocks, depth=1, boundary="none").compute()
    np.testing.assert_allclose(spread, out, rtol=1e-6)
    flat = da.from_array(x.reshape(-1), chunks=1000)
    doubled = vyre.dask.map_blocks(ten.saxpy.on("cpu"), 2.0, flat, flat)
    np.testing.assert_allclose(doubled.sum().compute(), 3 * x.sum(dtype=np.float64), rtol=1e-4)


def test_a_second_run_compiles_nothing(client):
    # A kernel with workgroup memory has one launch; of others the engine tries several while it learns, and compiles each once.
    flat = da.ones(4 * 960, chunks=960, dtype=np.int32)
    scan = ten.scan_blocks.on("cpu")
    scan(np.ones(960, np.int32), np.zeros(960, np.int32))
    assert set(vyre.dask.warm(client)) == set(client.scheduler_info()["workers"])
    first = {worker: counted["compiles"] for worker, counted in vyre.dask.metrics(client).items()}
    for _ in range(3):
        result = vyre.dask.map_blocks(scan, flat).compute()
        np.testing.assert_array_equal(result, np.tile(np.arange(1, 65), 60))
    assert {worker: counted["compiles"] for worker, counted in vyre.dask.metrics(client).items()} == first
    assert sum(counted["dispatches"] for counted in vyre.dask.metrics(client).values()) >= 12
    assert vyre.dask.collect(client).pipelines > 0


def test_what_does_not_fit_is_told_by_the_worker(client):
    with pytest.raises(vyre.errors.InvalidUse, match="float64"):
        vyre.dask.map_blocks(ten.squares.on("cpu"), da.ones(10)).compute()
    with pytest.raises(TypeError, match="array of Dask"):
        vyre.dask.map_blocks(ten.squares, np.ones(3))
