"""More data than a cluster's memory, through Dask on one machine: the answer, the answer with one worker killed in the middle, what a second
run compiles, and the time beside one process that has all cores.

    python cluster.py [--gigabytes 20] [--budget 4] [--processes 4] [--json FILE]
"""

import argparse
import json
import os
import signal
import tempfile
import threading
import time

import dask.array as da
import distributed
import numpy as np

import vyre
import vyre.dask

BLOCK = 1 << 24  # Elements of four bytes.

KERNEL = vyre.wgsl("""
    @group(0) @binding(0) var<storage, read> x: array<u32>;
    @group(0) @binding(1) var<storage, read_write> out: array<u32>;
    @compute @workgroup_size(64) fn mixed(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x >= arrayLength(&x) { return; }
        var v = x[id.x];
        for (var i = 0u; i < 64u; i++) {
            v ^= v >> 16u; v *= 0x7feb352du; v ^= v >> 15u; v *= 0x846ca68bu; v ^= v >> 16u;
        }
        out[id.x] = v;
    }""").on("cpu")


def block(number: int) -> np.ndarray:
    """Numbers that go on from block to block, modulo 2³²."""
    return np.arange(BLOCK, dtype=np.uint32) + np.uint32(number * BLOCK % (1 << 32))


def in_numpy(x: np.ndarray) -> np.ndarray:
    for _ in range(64):
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


def spread(blocks: int) -> da.Array:
    """The same as blocks of an array of Dask, which its workers make."""
    made = da.map_blocks(
        lambda block_id: block(block_id[0]), chunks=((BLOCK,) * blocks,), dtype=np.uint32, meta=np.empty(0, np.uint32)
    )
    return vyre.dask.map_blocks(KERNEL, made).sum(dtype=np.uint64)


def kill_one(client: distributed.Client, after: float) -> threading.Thread:
    pid = next(iter(client.run(os.getpid).values()))

    def kill() -> None:
        time.sleep(after)
        os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


def timed(work) -> tuple[float, int]:
    started = time.perf_counter()
    result = int(work())
    return time.perf_counter() - started, result


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--gigabytes", type=float, default=20)
    options.add_argument("--budget", type=float, default=4, help="gigabytes of all workers together")
    options.add_argument("--processes", type=int, default=4)
    options.add_argument("--json")
    args = options.parse_args()
    blocks = max(round(args.gigabytes * 1e9 / (BLOCK * 4)), args.processes)
    sample = block(1)[:100_000]
    out = np.empty_like(sample)
    KERNEL(sample, out)
    np.testing.assert_array_equal(out, in_numpy(sample))
    alone(2)
    alone_s, wanted = timed(lambda: alone(blocks))
    os.environ["VYRE_THREADS"] = str(max(len(os.sched_getaffinity(0)) // args.processes, 1))
    with (
        tempfile.TemporaryDirectory() as folder,
        distributed.LocalCluster(
            n_workers=args.processes,
            threads_per_worker=1,
            memory_limit=int(args.budget * 1e9 / args.processes),
            dashboard_address=None,
            local_directory=folder,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        vyre.dask.warm(client)
        client.wait_for_workers(args.processes)
        first_s, first = timed(lambda: spread(blocks).compute())
        before = sum(counted["compiles"] for counted in vyre.dask.metrics(client).values())
        second_s, second = timed(lambda: spread(blocks).compute())
        compiled = sum(counted["compiles"] for counted in vyre.dask.metrics(client).values()) - before
        killer = kill_one(client, second_s / 3)
        killed_s, killed = timed(lambda: spread(blocks).compute())
        killer.join()
    found = {
        "gigabytes": blocks * BLOCK * 4 / 1e9,
        "budget": args.budget,
        "processes": args.processes,
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
