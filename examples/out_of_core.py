"""A stencil over a field on disk that is never in memory as a whole: Dask reads it in blocks, with borders, and writes the result.

python examples/out_of_core.py [rows] [columns] [workers]
"""

import sys
import tempfile
from pathlib import Path

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

import vyre
import vyre.dask


@vyre.kernel
def smooth(a: vyre.f32[:, :], out: vyre.f32[:, :]):
    i, j = vyre.grid(2)
    rows, columns = a.shape
    if i < rows and j < columns:
        if 0 < i < rows - 1 and 0 < j < columns - 1:
            out[i, j] = 0.2 * (a[i, j] + a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1])
        else:
            out[i, j] = a[i, j]


def main(rows=4000, columns=4000, workers=2):
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "field.npy", Path(folder) / "smooth.npy"
        field = np.lib.format.open_memmap(source, "w+", np.float32, (rows, columns))
        for start in range(0, rows, 1000):
            field[start : start + 1000] = np.random.default_rng(start).random(field[start : start + 1000].shape, dtype=np.float32)
        field.flush()
        with LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
            blocks = da.from_array(np.load(source, mmap_mode="r"), chunks=(1000, 1000))
            result = np.lib.format.open_memmap(target, "w+", np.float32, (rows, columns))
            da.store(vyre.dask.map_overlap(smooth, blocks, depth=1), Written(target), lock=False)
            print("compiled:", {worker: counted["compiles"] for worker, counted in vyre.dask.metrics(client).items()})
        here = np.empty((50, columns), np.float32)
        smooth(np.ascontiguousarray(field[975:1025]), here)
        assert np.array_equal(here[1:-1], result[976:1024]), "the blocks differ from a strip across their border"
        print(f"{rows} x {columns}: mean {result.mean(dtype=np.float64):.4f}")


class Written:
    """A file that each worker opens for itself and writes its blocks into."""

    def __init__(self, path):
        self.path = path

    def __setitem__(self, place, block):
        out = np.lib.format.open_memmap(self.path, "r+")
        out[place] = block
        out.flush()


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:]))
