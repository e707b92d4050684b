"""Arrays of bfloat16: from ml_dtypes, torch and JAX, computed with as float32, multiplied as they are."""

import pickle
import subprocess
import sys

import numpy as np
import pytest

import vyre

ml_dtypes = pytest.importorskip("ml_dtypes")
bfloat16 = np.dtype(ml_dtypes.bfloat16)
RANDOM = np.random.default_rng(5)


def values(*shape):
    return RANDOM.normal(size=shape).astype(bfloat16)


@pytest.mark.parametrize("shape", [(7,), (3, 5), (), (0,), (2, 0)])
def test_arrays_keep_their_bits(shape):
    x = values(*shape) if shape else np.array(1.5, bfloat16)
    array = vyre.array(x)
    assert array.dtype == bfloat16 and array.shape == shape and array.nbytes == x.nbytes and "bfloat16" in repr(array)
    back = array.numpy()
    assert back.dtype == bfloat16 and back.tobytes() == x.tobytes()
    assert pickle.loads(pickle.dumps(array)).numpy().tobytes() == x.tobytes()


def test_strides_parts_and_writes():
    x = values(6, 4)
    assert vyre.array(x[::-1, ::2]).numpy().tobytes() == np.ascontiguousarray(x[::-1, ::2]).tobytes()
    array = vyre.array(x)
    assert array[1:3].numpy().tobytes() == x[1:3].tobytes() and array[2, 3] == x[2, 3]
    array[1] = 7
    x[1] = 7
    assert array.numpy().tobytes() == x.tobytes()
    assert vyre.zeros((2, 3), "bfloat16").numpy().tolist() == [[0.0] * 3] * 2
    assert vyre.array([1, 2.5], dtype="bfloat16").tolist() == [1, 2.5]
    assert vyre.array(vyre.array([1.0, 2.5]), dtype=bfloat16).dtype == bfloat16


def test_expressions_and_ops_compute_with_float32():
    x = values(33, 20)
    wide, array = x.astype(np.float32), vyre.array(x)
    made = 2 * array + 1
    assert made.dtype == np.float32
    np.testing.assert_array_equal(made.numpy(), 2 * wide + 1)
    np.testing.assert_allclose(array.sum(axis=0), wide.sum(0), rtol=1e-5, atol=1e-5)
    assert array.astype("float32").numpy().tobytes() == wide.tobytes()
    with pytest.raises(TypeError, match="store them with vyre.array"):
        made.astype("bfloat16")


def test_products_add_up_in_float32_and_round_once():
    a, b = values(48, 32), values(32, 64)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    made = vyre.array(a) @ vyre.array(b)
    assert made.dtype == bfloat16
    np.testing.assert_allclose(made.numpy().astype(np.float64), exact, rtol=2**-8, atol=1e-4)
    # With float32 beside it nothing is rounded to bfloat16.
    mixed = vyre.matmul(a, b.astype(np.float32))
    assert mixed.dtype == np.float32
    np.testing.assert_allclose(mixed.numpy(), exact, rtol=1e-4, atol=1e-4)


def test_kernels_say_what_to_do():
    @vyre.kernel
    def double(a: vyre.f32[:], out: vyre.f32[:]):
        i = vyre.grid(1)
        if i < a.size:
            out[i] = 2 * a[i]

    for given in (values(5), vyre.array(values(5))):
        with pytest.raises(vyre.errors.InvalidUse, match="holds float32, but an array of bfloat16") as raised:
            double(given)
        assert "astype" in raised.value.fix
    with pytest.raises(AttributeError, match="vyre.matmul"):
        vyre.bf16  # noqa: B018
    assert double(vyre.array(np.array([1.5], bfloat16)).astype("float32")).tolist() == [3]


def test_without_ml_dtypes_the_exception_says_what_to_install():
    code = """
import sys
sys.modules["ml_dtypes"] = None
import vyre
x = vyre.zeros(3, "bfloat16")
print(x, (x + 1).tolist())
for wrong in (x.numpy, lambda: vyre.array([1.0], dtype="bfloat16")):
    try:
        wrong()
    except (vyre.VyreError, TypeError) as error:
        print("ml_dtypes" in str(error))
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True).stdout
    assert shown.splitlines() == ["vyre.Array(shape=(3,), dtype=bfloat16) [1.0, 1.0, 1.0]", "True", "True"]


def test_tensors_of_torch():
    torch = pytest.importorskip("torch")
    x = torch.arange(12, dtype=torch.bfloat16).reshape(3, 4)
    assert vyre.array(x).numpy().astype(np.float32).tolist() == x.float().tolist()
    assert (vyre.array(x) @ vyre.array(x.T.contiguous())).numpy().astype(np.float32).tolist() == (x @ x.T).float().tolist()


def test_arrays_of_jax():
    jax = pytest.importorskip("jax")
    x = jax.numpy.arange(12, dtype=jax.numpy.bfloat16).reshape(3, 4)
    assert vyre.array(x).tolist() == x.tolist()
