"""Kernels from WGSL: arguments, results, errors."""

import asyncio
import pickle

import numpy as np
import pytest

import vyre

SCALED = """
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
override scale: f32 = 2.0;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&a) { out[id.x] = scale * a[id.x]; }
}"""

ENDLESS = """
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@compute @workgroup_size(1) fn main() {
    loop { if out[0] == 4000000000u { break; } out[0] = (out[0] + 1u) % 4000000000u; }
}"""

PARTICLES = """
struct Particle { position: vec3<f32>, mass: f32, tags: array<u32, 2> }
struct Rule { dt: f32, steps: u32 }
@group(0) @binding(0) var<uniform> rule: Rule;
@group(0) @binding(1) var<storage, read_write> particles: array<Particle>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= arrayLength(&particles) { return; }
    particles[id.x].position += vec3<f32>(rule.dt * f32(rule.steps));
    particles[id.x].tags[1] = rule.steps;
}"""


@pytest.fixture(scope="module")
def scaled():
    return vyre.wgsl(SCALED).on("cpu")


@pytest.fixture
def x():
    return np.arange(1000, dtype=np.float32)


def test_results_go_into_numpys_own_memory(scaled, x):
    out = np.zeros_like(x)
    where = out.ctypes.data
    assert scaled(x, out) is None
    assert out.ctypes.data == where
    np.testing.assert_array_equal(out, 2 * x)


def test_results_that_are_left_out_are_made(scaled, x):
    result = scaled(a=x)
    assert isinstance(result, vyre.Array) and result.shape == (1000,) and result.dtype == np.float32
    np.testing.assert_array_equal(result.numpy(), 2 * x)
    np.testing.assert_array_equal(np.asarray(result), 2 * x)


def test_constants_are_keywords(scaled, x):
    np.testing.assert_array_equal(scaled(x, scale=3.0).numpy(), 3 * x)
    np.testing.assert_array_equal(scaled.set(scale=0.5)(x).numpy(), x / 2)
    with pytest.raises(TypeError, match="scal.*neither a buffer nor a constant"):
        scaled(x, scal=1.0)


def test_chains_stay_on_the_device_and_arrays_are_values(scaled, x):
    now = vyre.array(x)
    before = now.copy()
    for _ in range(5):
        now = scaled(now)
    np.testing.assert_array_equal(now.numpy(), 32 * x)
    np.testing.assert_array_equal(before.numpy(), x)


def test_an_array_can_be_read_and_written_in_one_call(scaled, x):
    array = vyre.array(x)
    scaled(array, array)
    np.testing.assert_array_equal(array.numpy(), 2 * x)


def test_arrays_of_numpy_that_overlap_are_refused(scaled, x):
    with pytest.raises(vyre.errors.InvalidUse, match="same memory"):
        scaled(x[:500], x[250:750])


def test_what_does_not_fit_is_refused(scaled, x):
    with pytest.raises(vyre.errors.InvalidUse, match="float64"):
        scaled(x.astype(np.float64))
    with pytest.raises(vyre.errors.InvalidUse, match="read-only"):
        fixed = np.zeros_like(x)
        fixed.flags.writeable = False
        scaled(x, fixed)
    with pytest.raises(vyre.errors.InvalidUse, match="one behind another"):
        scaled(x, np.zeros(2000, np.float32)[::2])
    with pytest.raises(vyre.errors.InvalidUse, match="object"):
        scaled(np.array([1, None], object))
    with pytest.raises(vyre.errors.InvalidUse, match="no array"):
        scaled("abc")
    with pytest.raises(TypeError, match="needs `a`"):
        scaled()


def test_inputs_may_have_strides_and_no_elements(scaled, x):
    np.testing.assert_array_equal(scaled(x[::3]).numpy(), 2 * x[::3])
    assert scaled(np.zeros(0, np.float32)).numpy().size == 0


def test_errors_in_the_source_show_the_line():
    with pytest.raises(vyre.errors.KernelError) as raised:
        vyre.wgsl("fn main() {\n    let x = ;\n}")
    error = raised.value
    assert error.code == "V0401" and error.place[0] == 2 and "let x = ;" in str(error) and error.fix
    assert pickle.loads(pickle.dumps(error)).code == "V0401"


def test_kernels_pickle_by_content(scaled, x):
    text = pickle.dumps(scaled.set(scale=7.0))
    assert len(text) < 2 * len(SCALED)
    np.testing.assert_array_equal(pickle.loads(text)(x).numpy(), 7 * x)
    with pytest.raises(RuntimeError, match="was sent by vyre 9.9.9"):
        restore, (_, *state) = scaled.__reduce__()
        restore("9.9.9", *state)


def test_structs_have_the_kernels_layout():
    kernel = vyre.wgsl(PARTICLES).on("cpu")
    dtype = kernel.dtype("particles")
    assert dtype.itemsize == 32 and dtype.fields["mass"][1] == 12
    particles = np.zeros(10, dtype)
    particles["mass"] = 5
    kernel({"dt": 0.5, "steps": 3}, particles)
    assert (particles["position"] == 1.5).all() and (particles["tags"][:, 1] == 3).all() and (particles["mass"] == 5).all()
    kernel((0.5, 1), particles)
    assert (particles["position"] == 2.0).all()
    with pytest.raises(TypeError, match="no member 'dx'"):
        kernel({"dx": 1}, particles)
    with pytest.raises(vyre.errors.InvalidUse, match="kernel.dtype"):
        kernel((0.5, 1), np.zeros(10, [("position", np.float32, 3)]))


def test_a_launch_can_be_awaited_and_cancelled(x):
    scaled = vyre.wgsl(SCALED).on("cpu")

    async def both():
        one, other = scaled.launch(x), scaled.launch(vyre.array(x), scale=3.0)
        return await other, await one

    other, one = asyncio.run(both())
    np.testing.assert_array_equal(one.numpy(), 2 * x)
    np.testing.assert_array_equal(other.numpy(), 3 * x)
    out = vyre.zeros(1, "uint32")
    launch = vyre.wgsl(ENDLESS).on("cpu").launch(out)
    with pytest.raises(TimeoutError):
        launch.wait(0.05)
    launch.cancel()
    with pytest.raises(vyre.errors.LaunchCancelled):
        launch.wait()
    with pytest.raises(vyre.errors.LaunchCancelled):
        out.numpy()


def test_a_time_limit_ends_a_launch():
    out = vyre.zeros(1, "uint32")
    launch = vyre.wgsl(ENDLESS).on("cpu").timeout(0.05).launch(out)
    with pytest.raises(TimeoutError):
        launch.wait()
    with pytest.raises(vyre.errors.LaunchTimeout):
        out.numpy()


def test_a_time_limit_ends_a_call_without_a_handle():
    out = vyre.zeros(1, "uint32")
    endless = vyre.wgsl(ENDLESS).on("cpu").timeout(0.05)
    endless(out)
    with pytest.raises(vyre.errors.LaunchTimeout):
        out.numpy()
    with pytest.raises(vyre.errors.LaunchTimeout):
        endless(np.zeros(1, np.uint32))
