#!/usr/bin/env python3
"""Do fresh processes that tune the same kernel choose the same launch?

Each process has caches and settings of its own, so that it knows nothing of the others. Processes on the processor are pinned to pairs of
cores and run beside each other; those on a GPU run one at a time, on cores of their own. After every process its answer is printed, and at
the end (or when the time is over, or on Ctrl-C) how many gave which answer, and how far each answer is from the most common one by the
timings that all processes printed of both.

    agreement.py path/to/vyre examples/launches --backend cpu --cores 4-15 --processes 60 --seconds 200
"""
import argparse, collections, json, os, re, shutil, signal, statistics, subprocess, sys, tempfile, threading, time

TWELVE = "axpy_32 blur column_sums escape gather hash life polynomial quaternions row_sums stencil_4x4 transpose".split()
# Numbers at which the kernels take 24 µs or more on a large GPU.
LARGE = {"blur": 23, "column_sums": 26, "escape": 22, "gather": 23, "life": 23, "quaternions": 25, "row_sums": 26}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vyre")
    parser.add_argument("folder")
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--cores", default="0-1", help="as in 4-15; each process on the processor gets two of them")
    parser.add_argument("--kernels", default=",".join(TWELVE))
    parser.add_argument("--processes", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--log", help="a file for what every process printed")
    args = parser.parse_args()
    first, _, last = args.cores.partition("-")
    cores = list(range(int(first), int(last or first) + 1))
    on_cpu = args.backend == "cpu"
    places = [cores[at:at + 2] for at in range(0, len(cores), 2)] if on_cpu else [cores]
    kernels = args.kernels.split(",")
    work = collections.deque((turn, kernel) for turn in range(args.processes) for kernel in kernels)
    ends, lock, found, log = time.monotonic() + args.seconds, threading.Lock(), collections.defaultdict(list), None
    if args.log:
        log = open(args.log, "a")

    def run(place):
        while True:
            with lock:
                # A process that would be cut off says nothing.
                if not work or time.monotonic() > ends - 4:
                    return
                turn, kernel = work.popleft()
            answer, took = tune(args, kernel, place, on_cpu, ends)
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


def tune(args, kernel, place, on_cpu, ends):
    path = os.path.join(args.folder, kernel + ".wgsl")
    size = 1 << (19 if kernel in ("blur", "escape", "transpose") else 20) if on_cpu else 1 << LARGE.get(kernel, 24)
    inputs = re.findall(r"var<storage, read> (\w+)", open(path).read())
    home = tempfile.mkdtemp(prefix="agree-")
    env = dict(os.environ, XDG_CACHE_HOME=home + "/cache", XDG_CONFIG_HOME=home + "/config", NO_COLOR="1")
    command = ["taskset", "-c", ",".join(map(str, place)), args.vyre, "tune", path, "--backend", args.backend, "--json"]
    for name in inputs:
        command += ["--in", f"{name}=random:f32:{size}:seed=1"]
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
