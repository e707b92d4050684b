#!/usr/bin/env python3
"""Do fresh processes that tune the same kernel choose the same launch?

Each process has decisions and settings of its own, so that it knows nothing of the others; only compiled code and inputs are made once.
Processes on the processor are pinned to pairs of cores and run beside each other; those on a GPU run one at a time, on cores of their own.
After every process its answer is printed, and at the end (or when the time is over, or on Ctrl-C) how many gave which answer, and how far
each answer is from the most common one by the timings that all processes printed of both. What took several calls is summed up by their logs.

    agreement.py path/to/vyre examples/launches --backend cpu --cores 4-15 --processes 60 --seconds 200 --log one.jsonl
    agreement.py path/to/vyre examples/launches --backend cpu --cores 4-15 --first-turn 31 --seconds 200 --log two.jsonl
    agreement.py --summary one.jsonl two.jsonl
"""
import argparse, collections, json, os, re, shutil, signal, statistics, subprocess, sys, tempfile, threading, time

TWELVE = "axpy_32 blur column_sums escape gather hash life polynomial quaternions row_sums stencil_4x4 transpose".split()
# Numbers at which the kernels take 24 µs or more on a large GPU.
LARGE = {"blur": 23, "column_sums": 25, "escape": 22, "gather": 23, "life": 23}
COPY = """
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
@compute @workgroup_size(256)
fn copy(@builtin(global_invocation_id) id: vec3<u32>) { if id.x < arrayLength(&a) { out[id.x] = a[id.x]; } }
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vyre", nargs="?")
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--cores", default="0-1", help="as in 4-15; each process on the processor gets two of them")
    parser.add_argument("--kernels", default=",".join(TWELVE))
    parser.add_argument("--processes", type=int, default=60, help="of each kernel, those before the first turn included")
    parser.add_argument("--first-turn", type=int, default=0, help="goes on from there; each turn is a process of each kernel")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--log", help="a file for what every process printed")
    parser.add_argument("--summary", nargs="+", metavar="LOG", help="sums up logs and does nothing else")
    args = parser.parse_args()
    if args.summary:
        return sum_up(args.summary)
    first, _, last = args.cores.partition("-")
    cores = list(range(int(first), int(last or first) + 1))
    on_cpu = args.backend == "cpu"
    places = [cores[at:at + 2] for at in range(0, len(cores), 2)] if on_cpu else [cores]
    kernels = args.kernels.split(",")
    work = collections.deque((turn, kernel) for turn in range(args.first_turn, args.processes) for kernel in kernels)
    ends, lock, found, log = time.monotonic() + args.seconds, threading.Lock(), collections.defaultdict(list), None
    if args.log:
        log = open(args.log, "a")
    shared = tempfile.mkdtemp(prefix="agree-")
    os.mkdir(shared + "/code")
    sizes = {kernel: size_of(kernel, on_cpu) for kernel in kernels}
    for size in set(sizes.values()):
        make_input(args.vyre, shared, size)

    def run(place):
        while True:
            with lock:
                # A process that would be cut off says nothing.
                if not work or time.monotonic() > ends - 4:
                    return
                turn, kernel = work.popleft()
            answer, took = tune(args, kernel, sizes[kernel], place, shared, ends)
            with lock:
                if answer is None:
                    continue
                answer["seconds"] = took
                found[kernel].append(answer)
                launch = answer.get("launch") or answer.get("verdict") or answer.get("failed")
                print(f"{args.backend} {kernel} {turn} on {place[0]}: {launch}, {took:.1f} s, {answer.get('samples')} timings", flush=True)
                if log:
                    log.write(json.dumps({"backend": args.backend, "kernel": kernel, "turn": turn, "place": place[0], **answer}) + "\n")
                    log.flush()

    threads = [threading.Thread(target=run, args=(place,), daemon=True) for place in places]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except KeyboardInterrupt:
        pass
    with lock:
        summary(args.backend, kernels, found)
    shutil.rmtree(shared, ignore_errors=True)


def size_of(kernel, on_cpu):
    return 1 << (19 if kernel in ("blur", "escape", "transpose") else 20) if on_cpu else 1 << LARGE.get(kernel, 24)


def input_file(shared, size):
    return f"{shared}/{size}.bin"


def make_input(vyre, shared, size):
    """Random numbers as `vyre` makes them, which takes longer than to read them."""
    kernel = shared + "/copy.wgsl"
    with open(kernel, "w") as file:
        file.write(COPY)
    command = [vyre, "run", kernel, "--backend", "cpu", "--in", f"a=random:f32:{size}:seed=1", "--shape", f"out={size}"]
    env = dict(os.environ, XDG_CACHE_HOME=shared + "/own", XDG_CONFIG_HOME=shared + "/own")
    subprocess.run(command + ["--out", "out=raw:" + input_file(shared, size)], env=env, check=True, capture_output=True)


def tune(args, kernel, size, place, shared, ends):
    path = os.path.join(args.folder, kernel + ".wgsl")
    inputs = re.findall(r"var<storage, read> (\w+)", open(path).read())
    home = tempfile.mkdtemp(prefix="agree-")
    os.makedirs(home + "/cache/vyre")
    os.symlink(shared + "/code", home + "/cache/vyre/pipelines")
    env = dict(os.environ, XDG_CACHE_HOME=home + "/cache", XDG_CONFIG_HOME=home + "/config", NO_COLOR="1")
    command = ["taskset", "-c", ",".join(map(str, place)), args.vyre, "tune", path, "--backend", args.backend, "--json"]
    for name in inputs:
        command += ["--in", f"{name}=raw:{input_file(shared, size)}"]
    began = time.monotonic()
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=max(ends - began, 1))
    except subprocess.TimeoutExpired:
        return None, 0
    finally:
        shutil.rmtree(home, ignore_errors=True)
    took = time.monotonic() - began
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        return {"failed": done.stderr.strip()[-300:] or f"status {done.returncode}"}, took
    answer["measured"] = {one["launch"]: one["median_ns"] for one in answer.get("measured", [])}
    return answer, took


def sum_up(logs):
    found = collections.defaultdict(lambda: collections.defaultdict(list))
    for path in logs:
        for line in open(path):
            answer = json.loads(line)
            found[answer["backend"]][answer["kernel"]].append(answer)
    for backend, answers in found.items():
        summary(backend, sorted(answers), answers)


def summary(backend, kernels, found):
    print(f"\n{backend}: kernel, processes, answers with how far each is from the first by all processes' timings of both")
    alike = total = 0
    for kernel in kernels:
        answers = found.get(kernel, [])
        counts = collections.Counter(one.get("launch") or one.get("verdict") or "failed" for one in answers)
        if not counts:
            continue
        usual, most = counts.most_common(1)[0]
        alike, total = alike + most, total + len(answers)
        parts = []
        for launch, count in counts.most_common():
            both = [one["measured"] for one in answers if {launch, usual} <= one.get("measured", {}).keys()]
            off = statistics.median(times[launch] / times[usual] for times in both) - 1 if both else float("nan")
            parts.append(f"{count} x {launch} ({100 * off:+.1f}%)")
        print(f"{kernel:<16} {most} of {len(answers)}: {'; '.join(parts)}; {statistics.median(one['seconds'] for one in answers):.1f} s each", flush=True)
    print(f"{backend}: {alike} of {total} alike", flush=True)


if __name__ == "__main__":
    for ends_it in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ends_it, signal.default_int_handler)
    main()
