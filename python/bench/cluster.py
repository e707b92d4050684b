"""More data than a cluster's memory, through Dask or Ray on one machine: the answer, the answer with one worker killed in the middle, what a
second run compiles, and the time beside one process that has all cores.

    python cluster.py [dask|ray] [--gigabytes 20] [--budget 4] [--processes 4] [--rounds 64] [--json FILE]
"""

import argparse
import json
import os
import signal
import tempfile
import threading
import time

import numpy as np

import vyre

BLOCK = 1 << 24  # Elements of four bytes.

KERNEL = vyre.wgsl("""
    @group(0) @binding(0) var<storage, read> x: array<u32>;
    @group(0) @binding(1) var<storage, read_write> out: array<u32>;
    override rounds: u32 = 64;
    @compute @workgroup_size(64) fn mixed(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x >= arrayLength(&x) { return; }
        var v = x[id.x];
        for (var i = 0u; i < rounds; i++) {
            v ^= v >> 16u; v *= 0x7feb352du; v ^= v >> 15u; v *= 0x846ca68bu; v ^= v >> 16u;
        }
        out[id.x] = v;
    }""").on("cpu")


def block(number: int) -> np.ndarray:
    """Numbers that go on from block to block, modulo 2³²."""
    return np.arange(BLOCK, dtype=np.uint32) + np.uint32(number * BLOCK % (1 << 32))


def in_numpy(x: np.ndarray, rounds: int) -> np.ndarray:
    for _ in range(rounds):
        x = x ^ x >> np.uint32(16)
        x = x * np.uint32(0x7FEB352D)
        x = x ^ x >> np.uint32(15)
        x = x * np.uint32(0x846CA68B)
        x = x ^ x >> np.uint32(16)
    return x


def alone(blocks: int) -> int:
    """One process with all cores, one block after the other."""
    total, out = 0, np.empty(BLOCK, np.uint32)
    for number in range(blocks):
        KERNEL(block(number), out)
        total += int(out.sum(dtype=np.uint64))
    return total


def killed_in_the_middle(cluster, blocks: int, after: float) -> int:
    """The sum, while somebody kills one of those who make it."""
    died: list[int] = []

    def kill() -> None:
        time.sleep(after)
        pid = cluster.some_worker()
        os.kill(pid, signal.SIGKILL)
        died.append(pid)

    thread = threading.Thread(target=kill)
    thread.start()
    total = cluster.total(blocks)
    thread.join()
    assert died, "nobody was killed"
    return total


def timed(work) -> tuple[float, int]:
    started = time.perf_counter()
    result = int(work())
    return time.perf_counter() - started, result


class Dask:
    """Blocks of an array of Dask, which its workers make, through ``LocalCluster``."""

    def __init__(self, processes: int, budget: float, folder: str) -> None:
        import distributed

        self.cluster = distributed.LocalCluster(
            n_workers=processes,
            threads_per_worker=1,
            memory_limit=int(budget * 1e9 / processes),
            dashboard_address=None,
            local_directory=folder,
        )
        self.client = distributed.Client(self.cluster)
        self.client.wait_for_workers(processes)
        import vyre.dask

        vyre.dask.warm(self.client)

    def total(self, blocks: int) -> int:
        import dask.array as da

        made = da.map_blocks(
            lambda block_id: block(block_id[0]), chunks=((BLOCK,) * blocks,), dtype=np.uint32, meta=np.empty(0, np.uint32)
        )
        return int(vyre.dask.map_blocks(KERNEL, made).sum(dtype=np.uint64).compute())

    def compiled(self) -> int:
        return sum(counted["compiles"] for counted in vyre.dask.metrics(self.client).values())

    def some_worker(self) -> int:
        return next(iter(self.client.run(os.getpid).values()))

    def close(self) -> None:
        self.client.close()
        self.cluster.close()


class Ray:
    """Rows of Ray Data, a block each, through actors; the object store has the whole budget and spills to a folder."""

    def __init__(self, processes: int, budget: float, folder: str) -> None:
        import sys

        import ray

        self.processes = processes
        self.before: set[str] = set()
        paths = ":".join(path for path in sys.path if path)
        ray.init(
            num_cpus=2 * processes,
            object_store_memory=int(budget * 1e9),
            include_dashboard=False,
            runtime_env={"env_vars": {"PYTHONPATH": paths, "VYRE_THREADS": os.environ["VYRE_THREADS"]}},
            _temp_dir=folder,
        )

    def total(self, blocks: int) -> int:
        import ray

        import vyre.ray

        self.before = set(vyre.ray.metrics())
        numbers = ray.data.range(blocks, override_num_blocks=blocks)
        # A row holds a block: rows of one number each cost Ray more than the kernel does.
        made = numbers.map_batches(lambda batch: {"x": block(int(batch["id"][0]))[None, :]}, batch_size=1)
        through = vyre.ray.map_batches(made, KERNEL, ["x"], "out", dtype="uint32", concurrency=self.processes, batch_size=1)
        sums = through.map_batches(lambda batch: {"sum": np.array([batch["out"].sum(dtype=np.uint64)])}, batch_size=1)
        return sum(int(row["sum"]) for row in sums.take_all())

    def compiled(self) -> int:
        import vyre.ray

        return sum(counted["compiles"] for worker, counted in vyre.ray.metrics().items())

    def some_worker(self) -> int:
        """The last that reported before this run may be gone, so it waits for one of this run."""
        import vyre.ray

        while not (new := set(vyre.ray.metrics()) - self.before):
            time.sleep(0.1)
        return int(new.pop().split(":")[-1])

    def close(self) -> None:
        import ray

        ray.shutdown()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("engine", nargs="?", choices=["dask", "ray"], default="dask")
    options.add_argument("--gigabytes", type=float, default=20)
    options.add_argument("--budget", type=float, default=4, help="gigabytes of all workers together")
    options.add_argument("--processes", type=int, default=4)
    options.add_argument("--rounds", type=int, default=64, help="of an integer hash of each number: how much work there is")
    options.add_argument("--json")
    args = options.parse_args()
    global KERNEL
    KERNEL = KERNEL.set(rounds=args.rounds)
    blocks = max(round(args.gigabytes * 1e9 / (BLOCK * 4)), args.processes)
    sample = block(1)[:100_000]
    out = np.empty_like(sample)
    KERNEL(sample, out)
    np.testing.assert_array_equal(out, in_numpy(sample, args.rounds))
    alone(2)
    alone_s, wanted = timed(lambda: alone(blocks))
    os.environ["VYRE_THREADS"] = str(max(len(os.sched_getaffinity(0)) // args.processes, 1))
    with tempfile.TemporaryDirectory() as folder:
        cluster = (Dask if args.engine == "dask" else Ray)(args.processes, args.budget, folder)
        first_s, first = timed(lambda: cluster.total(blocks))
        before = cluster.compiled()
        second_s, second = timed(lambda: cluster.total(blocks))
        compiled = cluster.compiled() - before
        killed_s, killed = timed(lambda: killed_in_the_middle(cluster, blocks, second_s / 3))
        cluster.close()
    found = {
        "engine": args.engine,
        "gigabytes": blocks * BLOCK * 4 / 1e9,
        "budget": args.budget,
        "processes": args.processes,
        "rounds": args.rounds,
        "right": first == wanted and second == wanted,
        "right with one killed": killed == wanted,
        "compiled in the second run": compiled,
        "seconds": {"one process": alone_s, "first": first_s, "second": second_s, "one killed": killed_s},
        "efficiency": alone_s / min(first_s, second_s),
    }
    print(json.dumps(found, indent=2))
    if args.json:
        with open(args.json, "w") as file:
            json.dump(found, file, indent=2)
    assert found["right"] and found["right with one killed"] and compiled == 0


if __name__ == "__main__":
    main()
