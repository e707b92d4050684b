"""Tensors of other libraries on a CUDA device: worked on where they lie, in the order of their streams."""

import os

import numpy as np
import pytest

import vyre

# Else JAX takes most of the device's memory for itself.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

torch = pytest.importorskip("torch", reason="torch is not installed")
if not torch.cuda.is_available():
    pytest.skip("there is no CUDA device", allow_module_level=True)

N = 1 << 20


@vyre.kernel
def scale(a: vyre.f32[:], out: vyre.f32[:]):
    i = vyre.grid(1)
    if i < a.size:
        out[i] = 2.0 * a[i] + 1.0


@vyre.kernel
def slow(a: vyre.f32[:], out: vyre.f32[:]):
    i = vyre.grid(1)
    if i < a.size:
        x = a[i]
        for _ in range(3000):
            x = x * 0.5 + 0.5
        out[i] = x + a[i]


def moved():
    counts = vyre.metrics()
    return counts["bytes_uploaded"], counts["bytes_downloaded"], counts["bytes_copied"]


@pytest.fixture
def x():
    return torch.arange(N, dtype=torch.float32, device="cuda")


def test_torch_is_worked_on_in_its_memory(x):
    out = torch.zeros_like(x)
    scale(x, out)  # compiled here
    torch.cuda.synchronize()
    before, places = moved(), (x.data_ptr(), out.data_ptr())
    out.zero_()
    scale(x, out)
    assert moved() == before and (x.data_ptr(), out.data_ptr()) == places
    assert torch.equal(out, 2 * x + 1)
    assert vyre.explain(scale)["backend"] == "cuda"


def test_results_that_are_left_out_are_arrays_on_the_device(x):
    made = scale(x)
    np.testing.assert_array_equal(made.numpy(), 2 * x.cpu().numpy() + 1)
    out = torch.empty_like(x)
    scale(made, out)
    assert torch.equal(out, 4 * x + 3)


def test_work_comes_after_the_producers_stream(x):
    """Without waiting for the stream the kernel would read what was there before."""
    scale(x, torch.empty_like(x))
    source, out = torch.zeros_like(x), torch.zeros_like(x)
    torch.cuda.synchronize()
    for _ in range(5):
        source.zero_()
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda._sleep(50_000_000)
            source.copy_(x)
            scale(source, out)
            later = out.clone()
        torch.cuda.synchronize()
        assert torch.equal(later, 2 * x + 1)


def test_what_the_producer_does_next_comes_after_the_work(x):
    """Without its stream waiting, the clone would miss results, and the zeros would come under the kernel's hands."""
    expected = slow(x).numpy()
    source, out = x.clone(), torch.zeros_like(x)
    for _ in range(5):
        with torch.cuda.stream(torch.cuda.Stream()):
            source.copy_(x)
            out.zero_()
            slow(source, out)
            later = out.clone()
            source.zero_()
        torch.cuda.synchronize()
        np.testing.assert_array_equal(later.cpu().numpy(), expected)


def test_tensors_that_are_gone_are_kept_while_they_are_used(x):
    out = torch.zeros_like(x)
    for value in range(100):
        slow(torch.full_like(x, value), out)
    expected = slow(np.full(N, 99, np.float32)).numpy()
    np.testing.assert_array_equal(out.cpu().numpy(), expected)


def test_arrays_are_made_of_tensors_as_copies(x):
    array = vyre.array(x)
    kept = x.cpu().numpy()
    x.zero_()
    np.testing.assert_array_equal(array.numpy(), kept)
    np.testing.assert_allclose((vyre.array(kept) * torch.full((N,), 2.0, device="cuda")).numpy(), 2 * kept)


def test_other_libraries(x):
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    a, out = cupy.arange(N, dtype=cupy.float32), cupy.zeros(N, cupy.float32)
    scale(a, out)
    cupy.cuda.runtime.deviceSynchronize()
    before, place = moved(), out.data.ptr
    with cupy.cuda.Stream(non_blocking=True):
        a += 1
        scale(a, out)
        seen = out.copy()
    cupy.cuda.runtime.deviceSynchronize()
    assert moved() == before and out.data.ptr == place
    cupy.testing.assert_array_equal(seen, 2 * a + 1)


def test_jax(x):
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    if jax.default_backend() != "gpu":
        pytest.skip("JAX has no GPU")
    a = jax.numpy.arange(N, dtype=jax.numpy.float32)
    before = moved()
    np.testing.assert_array_equal(scale(a).numpy(), 2 * np.asarray(a) + 1)
    assert moved()[0] == before[0]
    with pytest.raises(vyre.errors.InvalidUse, match="don't change"):
        scale(a, a)


class OnlyDLPack:
    def __init__(self, tensor):
        self.tensor, self.shape, self.ndim = tensor, tensor.shape, tensor.ndim

    def __dlpack__(self, **options):
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


def test_dlpack_is_enough(x):
    out = torch.zeros_like(x)
    scale(OnlyDLPack(x), OnlyDLPack(out))
    torch.cuda.synchronize()
    before = moved()
    scale(OnlyDLPack(x + 1), OnlyDLPack(out))
    assert moved() == before
    torch.cuda.synchronize()
    assert torch.equal(out, 2 * (x + 1) + 1)


def test_what_can_not_be_bound_is_told(x):
    out = torch.zeros_like(x)
    for wrong, said in [
        (x.double(), "float64"),
        (x.bfloat16(), "no elements of type"),
        (x[::2], "one behind another"),
        (x[1:], "within a block"),
        (x.clone().requires_grad_(), "requires grad"),
        (torch.zeros(N, device="cuda", dtype=torch.complex64), "no elements of type"),
    ]:
        with pytest.raises(vyre.errors.InvalidUse, match=said):
            scale(wrong, out)
    with pytest.raises(vyre.errors.InvalidUse, match="same memory"):
        scale(x, x)
    empty = torch.zeros(0, device="cuda")
    scale(empty, empty.clone())
    freed = x.clone()
    freed.untyped_storage().resize_(0)
    with pytest.raises((vyre.VyreError, RuntimeError)):
        scale(freed, out)


def test_a_wrong_stream_is_an_error_and_no_crash(x):
    class OnAStream:
        shape, ndim = x.shape, x.ndim

        def __init__(self, stream):
            self.__cuda_array_interface__ = {**x.__cuda_array_interface__, "version": 3, "stream": stream}

    with pytest.raises((vyre.VyreError, OverflowError, TypeError)):
        scale(OnAStream("no stream"), torch.zeros_like(x))
    scale(OnAStream(1), torch.zeros_like(x))
    scale(OnAStream(None), torch.zeros_like(x))
