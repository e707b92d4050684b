"""Threads, forks, spawned processes, signals, and packs between processes."""

import multiprocessing
import os
import subprocess
import sys
import threading
import time

import kernels_in_python as ten
import numpy as np
import pytest

import vyre

HERE = os.path.dirname(__file__)


def start(code, **environment):
    """Another Python with the same modules."""
    paths = os.pathsep.join([os.path.dirname(os.path.dirname(vyre.__file__)), HERE, os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-c", code], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": paths, **environment},
    )  # fmt: skip


def finish(process):
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out


def squares_in_this_process(seed):
    x = np.random.default_rng(seed).random(1000, dtype=np.float32)
    out = np.zeros_like(x)
    ten.squares.on("cpu")(x, out)
    return bool(np.array_equal(out, x * x + 1))


def test_threads_call_one_kernel():
    kernel = ten.squares.on("cpu")
    wrong = []

    def work(seed):
        x = np.random.default_rng(seed).random(5000, dtype=np.float32)
        out = np.zeros_like(x)
        for _ in range(50):
            kernel(x, out)
            resident = kernel(vyre.array(x)).numpy()
            if not (np.array_equal(out, x * x + 1) and np.array_equal(resident, out)):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_an_engine_of_its_own():
    assert squares_in_this_process(1)
    child = os.fork()
    if child == 0:
        os._exit(0 if squares_in_this_process(2) else 1)
    deadline = time.monotonic() + 60
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
        assert time.monotonic() < deadline, "the child hangs"
        time.sleep(0.02)
    assert os.waitstatus_to_exitcode(ended[1]) == 0
    assert squares_in_this_process(3)


def test_spawned_processes_get_kernels_by_content():
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(squares_in_this_process, range(4)) == [True] * 4
        x = np.arange(10, dtype=np.float32)
        (made,) = pool.starmap(ten.squares.on("cpu"), [(x,)])
        np.testing.assert_array_equal(made.numpy(), x * x + 1)


ENDLESS = '''
import os, signal, sys, threading, time, vyre, numpy as np
# Who starts these tests in the background may have told them to ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)
endless = vyre.wgsl("""
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@compute @workgroup_size(1) fn main() { loop { if out[0] == 4000000000u { break; } out[0] = (out[0] + 1u) % 4000000000u; } }
""").on("cpu")
threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
begin = time.monotonic()
try:
    CALL
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - begin < 1.5)
double = vyre.wgsl("""
@group(0) @binding(0) var<storage, read_write> a: array<f32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&a) { a[id.x] = 2.0 * a[id.x]; } }""").on("cpu")
x = np.ones(4, np.float32)
double(x)
print(x.tolist())
'''


@pytest.mark.parametrize("call", ["endless.launch(vyre.zeros(1, 'uint32')).wait()", "endless(np.zeros(1, np.uint32))"])
def test_ctrl_c_ends_a_launch_and_the_interpreter_goes_on(call):
    shown = finish(start(ENDLESS.replace("CALL", call)))
    assert shown.split("\n")[:2] == ["interrupted True", "[2.0, 2.0, 2.0, 2.0]"]


def test_large_arrays_are_used_where_they_are():
    x = np.ones(8_000_000, np.float32)
    out = np.zeros_like(x)
    before = vyre.metrics()
    where = out.ctypes.data
    ten.squares.on("cpu")(x, out)
    after = vyre.metrics()
    assert out.ctypes.data == where and (out == 2).all()
    moved = ("bytes_uploaded", "bytes_downloaded", "bytes_copied")
    assert [after[name] - before[name] for name in moved] == [0, 0, 0]


def test_torch_tensors_are_used_where_they_are():
    torch = pytest.importorskip("torch")
    x, out = torch.arange(10, dtype=torch.float32), torch.zeros(10)
    ten.squares.on("cpu")(x, out)
    assert torch.equal(out, x * x + 1)
    assert out.data_ptr() == out.numpy().ctypes.data


def test_arrays_of_jax_are_inputs():
    jnp = pytest.importorskip("jax.numpy")
    x = jnp.arange(10, dtype=jnp.float32)
    np.testing.assert_array_equal(ten.squares.on("cpu")(x).numpy(), np.arange(10) ** 2 + 1)
    with pytest.raises(vyre.errors.InvalidUse):  # JAX's arrays don't change.
        ten.squares.on("cpu")(x, x)


WORK = """
import numpy as np, kernels_in_python as ten, vyre
pack, way = PACK
if way == "in": print(vyre.import_pack(pack))
args = ten.arguments("heat"); ten.heat.on("cpu")(*args)
np.testing.assert_allclose(args[-1], ten.expected("heat", args), rtol=1e-5)
vyre.flush()
if way == "out": print(vyre.export_pack(pack).pipelines > 0)
print("compiles", vyre.metrics()["compiles"])
"""


def test_what_was_compiled_travels_in_a_pack(tmp_path):
    pack = str(tmp_path / "warm.pack")
    caches = [tmp_path / "one", tmp_path / "other"]
    for cache in caches:
        cache.mkdir(mode=0o700)
    one = finish(start(WORK.replace("PACK", repr((pack, "out"))), XDG_CACHE_HOME=str(caches[0])))
    assert one.split("\n")[0] == "True" and "compiles 0" not in one
    other = finish(start(WORK.replace("PACK", repr((pack, "in"))), XDG_CACHE_HOME=str(caches[1])))
    assert "compiles 0" in other
    damaged = bytearray((tmp_path / "warm.pack").read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (tmp_path / "bad.pack").write_bytes(damaged)
    with pytest.raises(vyre.VyreError):
        vyre.import_pack(tmp_path / "bad.pack")
    with pytest.raises(ValueError, match="32 bytes"):
        vyre.import_pack(pack, key=b"short")


def test_importing_is_quick_and_needs_no_numpy():
    out = finish(start("import sys, vyre; print('numpy' in sys.modules, len(vyre.devices()) > 0)"))
    assert out.split() == ["False", "True"]
