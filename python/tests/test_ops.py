"""Ops mean what NumPy's do, and take expressions in."""

import hashlib
import zlib

import numpy as np
import pytest

import vyre

RANDOM = np.random.default_rng(3)
FLOATS = RANDOM.normal(size=(37, 53)).astype(np.float32)
WHOLE = RANDOM.integers(-50, 50, (37, 53), dtype=np.int32)


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("values", [FLOATS, WHOLE], ids=["float32", "int32"])
@pytest.mark.parametrize("name", ["sum", "min", "max", "mean", "var", "std", "argmin", "argmax", "any", "all"])
def test_reductions_are_numpys(name, values, axis):
    array = vyre.array(values)
    expected = getattr(np, name)(values, axis)
    made = getattr(vyre, name)(array, axis)
    np.testing.assert_allclose(np.asarray(made), expected, rtol=2e-5, atol=2e-5)
    np.testing.assert_array_equal(np.asarray(getattr(array, name)(axis)), np.asarray(made))
    kept = np.asarray(getattr(vyre, name)(array, axis, keepdims=True))
    assert kept.shape == getattr(np, name)(values, axis, keepdims=True).shape


def test_products_and_scans():
    few = np.array([3, -2, 5, 1], np.int32)
    assert int(vyre.prod(vyre.array(few))) == -30
    for axis in (0, 1, -1):
        np.testing.assert_array_equal(vyre.array(WHOLE).cumsum(axis).numpy(), np.cumsum(WHOLE, axis))
    np.testing.assert_array_equal(vyre.cumsum(vyre.array(WHOLE)).numpy(), np.cumsum(WHOLE, dtype=np.int32))
    np.testing.assert_array_equal(vyre.exclusive_sum(vyre.array(few)).numpy(), [0, 3, 1, 6])
    np.testing.assert_array_equal(vyre.cumprod(vyre.array(few)).numpy(), np.cumprod(few))


def test_orders():
    flat = FLOATS.ravel()
    array = vyre.array(flat)
    np.testing.assert_array_equal(vyre.sort(array).numpy(), np.sort(flat))
    np.testing.assert_array_equal(vyre.sort(array, descending=True).numpy(), np.sort(flat)[::-1])
    np.testing.assert_array_equal(array.argsort().numpy(), np.argsort(flat, kind="stable"))
    values, places = vyre.top_k(array, 5)
    np.testing.assert_array_equal(values.numpy(), np.sort(flat)[::-1][:5])
    np.testing.assert_array_equal(flat[places.numpy()], values.numpy())
    values, places = vyre.top_k(vyre.array(FLOATS), 2, axis=-1)
    np.testing.assert_array_equal(values.numpy(), np.sort(FLOATS, 1)[:, ::-1][:, :2])
    np.testing.assert_array_equal(np.take_along_axis(FLOATS, places.numpy().astype(int), 1), values.numpy())
    np.testing.assert_array_equal(vyre.unique(vyre.array(WHOLE)).numpy(), np.unique(WHOLE))
    np.testing.assert_array_equal(vyre.compress(array > 1, array).numpy(), flat[flat > 1])
    counts = np.array([3, 0, 3, 9, 2], np.uint32)
    np.testing.assert_array_equal(vyre.bincount(counts, 5).numpy(), [1, 0, 1, 2, 0])


def test_halves_are_sorted_by_their_bits():
    halves = np.concatenate([FLOATS.ravel(), [np.inf, -np.inf, 0, -0.0, 6e-8]]).astype(np.float16)
    array = vyre.array(halves)
    assert vyre.sort(array).dtype == np.float16
    np.testing.assert_array_equal(vyre.sort(array).numpy(), np.sort(halves))
    np.testing.assert_array_equal(vyre.sort(array, descending=True).numpy(), np.sort(halves)[::-1])
    order = vyre.argsort(array).numpy()
    np.testing.assert_array_equal(halves[order], np.sort(halves))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_products_have_epilogues(dtype):
    a, b = FLOATS[:, :20].astype(dtype), FLOATS[:20].astype(dtype)
    bias = RANDOM.normal(size=53).astype(dtype)
    sums = 0.5 * (a.astype(np.float64) @ b.astype(np.float64)) + bias
    near = {"rtol": 2e-3, "atol": 2e-3} if dtype == np.float16 else {"rtol": 1e-4, "atol": 1e-5}
    made = vyre.linear(a, b, bias, scale=0.5, activation="relu")
    assert made.dtype == dtype
    np.testing.assert_allclose(made.numpy(), np.maximum(sums, 0), **near)
    gelu = sums / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (sums + 0.044715 * sums**3)))
    np.testing.assert_allclose(vyre.linear(a, b, bias, 0.5, "gelu").numpy(), gelu, **near)
    np.testing.assert_array_equal(vyre.linear(a, b).numpy(), (vyre.array(a) @ b).numpy())
    with pytest.raises(vyre.errors.InvalidUse, match="no activation"):
        vyre.linear(a, b, activation="swish")


def test_rows():
    shifted = np.exp(FLOATS - FLOATS.max(1, keepdims=True))
    soft = shifted / shifted.sum(1, keepdims=True)
    array = vyre.array(FLOATS)
    np.testing.assert_allclose(vyre.softmax(array).numpy(), soft, rtol=1e-5)
    np.testing.assert_allclose(vyre.log_softmax(array).numpy(), np.log(soft), rtol=1e-5)
    centred = FLOATS - FLOATS.mean(1, keepdims=True)
    normed = centred / np.sqrt(FLOATS.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(vyre.layer_norm(array).numpy(), normed, rtol=1e-3, atol=1e-4)
    root = np.sqrt((FLOATS**2).mean(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(vyre.rms_norm(array).numpy(), FLOATS / root, rtol=1e-4, atol=1e-5)


def test_matrices():
    other = RANDOM.normal(size=(53, 11)).astype(np.float32)
    a, b = vyre.array(FLOATS), vyre.array(other)
    np.testing.assert_allclose((a @ b).numpy(), FLOATS @ other, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose((FLOATS @ b).numpy(), FLOATS @ other, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose((a @ other[:, 0]).numpy(), FLOATS @ other[:, 0], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose((b[:, 0] @ b).numpy(), other[:, 0] @ other, rtol=1e-4, atol=1e-4)
    assert float(b[:, 0] @ b[:, 1]) == pytest.approx(float(other[:, 0] @ other[:, 1]), abs=1e-4)
    np.testing.assert_array_equal(a.T.numpy(), FLOATS.T)
    np.testing.assert_array_equal(a.transpose(1, 0).numpy(), FLOATS.T)
    cube = vyre.array(np.arange(24, dtype=np.uint32).reshape(2, 3, 4))
    np.testing.assert_array_equal(cube.transpose((2, 0, 1)).numpy(), cube.numpy().transpose(2, 0, 1))
    with pytest.raises(ValueError, match="don't fit"):
        a @ a


def test_attention():
    q, k, v = (RANDOM.normal(size=(2, count, 16)).astype(np.float32) for count in (9, 70, 70))
    scores = q @ k.transpose(0, 2, 1) / 4
    for causal in (False, True):
        seen = np.where(np.arange(70) <= np.arange(9)[:, None], scores, -np.inf) if causal else scores
        weights = np.exp(seen - seen.max(-1, keepdims=True))
        expected = weights / weights.sum(-1, keepdims=True) @ v
        np.testing.assert_allclose(vyre.attention(q, k, v, causal=causal).numpy(), expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(vyre.VyreError):
        vyre.attention(q, k, v[:, 1:])


def test_fourier_transforms():
    waves = (RANDOM.normal(size=(3, 60)) + 1j * RANDOM.normal(size=(3, 60))).astype(np.complex64)
    parts = waves[..., None].view(np.float32)
    found = vyre.fft(parts).numpy().view(np.complex64)[..., 0]
    np.testing.assert_allclose(found, np.fft.fft(waves), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(vyre.ifft(vyre.fft(parts)).numpy(), parts, atol=1e-5)
    with pytest.raises(vyre.VyreError, match="Fourier"):
        vyre.fft(np.zeros((11, 2), np.float32))


@pytest.mark.parametrize("boundary", ["zero", "edge", "wrap", "reflect"])
def test_stencils(boundary):
    weights = RANDOM.normal(size=(3, 5)).astype(np.float32)
    padded = np.pad(FLOATS, ((1, 1), (2, 2)), mode="constant" if boundary == "zero" else boundary)
    expected = sum(weights[y, x] * padded[y : y + 37, x : x + 53] for y in range(3) for x in range(5))
    np.testing.assert_allclose(vyre.stencil(FLOATS, weights, boundary).numpy(), expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(vyre.VyreError, match="boundary"):
        vyre.stencil(FLOATS, weights, "none")


def test_convolutions():
    images = RANDOM.normal(size=(2, 3, 9, 8)).astype(np.float32)
    weights = RANDOM.normal(size=(4, 3, 3, 2)).astype(np.float32)
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 2), (2, 3))[:, :, ::2, ::2]
    expected = np.einsum("nchwyx,ocyx->nohw", windows, weights)
    np.testing.assert_allclose(vyre.convolution(images, weights, 2, 1).numpy(), expected, rtol=1e-4, atol=1e-5)


def test_bodies_attract_each_other():
    bodies = RANDOM.normal(size=(50, 4)).astype(np.float32)
    to = bodies[None, :, :3] - bodies[:, None, :3]
    far = (to.astype(np.float64) ** 2).sum(2) + 0.01
    expected = (to * (bodies[None, :, 3] / far**1.5)[..., None]).sum(1)
    np.testing.assert_allclose(vyre.accelerations(bodies, 0.1).numpy(), expected, rtol=1e-4, atol=1e-4)


def test_segments_and_digests():
    sums = vyre.segment_cumsum(vyre.array(WHOLE.ravel()), np.array([0, 40, 1961], np.uint32))
    expected = np.concatenate([np.cumsum(WHOLE.ravel()[:40]), np.cumsum(WHOLE.ravel()[40:])])
    np.testing.assert_array_equal(sums.numpy(), expected)
    offsets = np.array([3, 40, 40, 1900], np.uint32)
    for descending, step in [(False, 1), (True, -1)]:
        parts = [np.sort(WHOLE.ravel()[start:end])[::step] for start, end in [(3, 40), (40, 1900)]]
        expected = np.zeros_like(WHOLE.ravel())
        expected[3:1900] = np.concatenate(parts)
        np.testing.assert_array_equal(vyre.segment_sort(WHOLE.ravel(), offsets, descending).numpy(), expected)
    messages = RANDOM.integers(0, 1 << 32, (5, 17), dtype=np.uint32)
    np.testing.assert_array_equal(vyre.crc32(messages).numpy(), [zlib.crc32(row.tobytes()) for row in messages])
    hashes = [hashlib.sha256(row.tobytes()).digest() for row in messages]
    assert [row.astype(">u4").tobytes() for row in vyre.sha256(messages).numpy()] == hashes


def test_moves():
    rows = np.array([5, 0, 36], np.uint32)
    array = vyre.array(WHOLE)
    np.testing.assert_array_equal(vyre.take(array, rows).numpy(), WHOLE[rows])
    base, places, values = np.zeros(6, np.int32), np.array([4, 1, 4], np.uint32), np.array([1, 2, 3], np.int32)
    np.testing.assert_array_equal(vyre.scatter_add(base, places, values).numpy(), [0, 2, 0, 0, 4, 0])
    np.testing.assert_array_equal(vyre.scatter(base, places[:2], values[:2]).numpy(), [0, 2, 0, 0, 1, 0])


def test_what_an_op_is_given_is_computed_inside_of_it():
    a, b = vyre.array(FLOATS), vyre.array(FLOATS + 2)
    float(vyre.sum((a - b) * (a - b)))
    before = vyre.metrics()["dispatches"]
    total = vyre.sum((a - b) * (a - b))
    # One kernel over both arrays; large arrays take a second one for what the blocks gave.
    assert vyre.metrics()["dispatches"] - before <= 2
    assert float(total) == pytest.approx(4.0 * FLOATS.size, rel=1e-5)
    centred = a - a.mean()
    np.testing.assert_allclose(centred.numpy(), FLOATS - FLOATS.mean(), atol=1e-5)
    assert int((a > 0).sum()) == (FLOATS > 0).sum()


def test_parts_are_arrays():
    array = vyre.array(WHOLE)
    for key in [
        np.s_[2:5], np.s_[:, 3], np.s_[-4:, ::5], np.s_[7], np.s_[..., 1], np.s_[None, 4:4], np.s_[3, 4:9], np.s_[::-1], np.s_[[3, 1, 3]],
    ]:  # fmt: skip
        part = array[key]
        assert isinstance(part, vyre.Array) and part.shape == WHOLE[key].shape, key
        np.testing.assert_array_equal(part.numpy(), WHOLE[key])
    assert array[3, -1] == WHOLE[3, -1] and array[3, -1].dtype == np.int32
    part = array[1:3]
    part.write(0)
    np.testing.assert_array_equal(array.numpy(), WHOLE)
    for wrong in (np.s_[37], np.s_[0, 0, 0], np.s_[-38]):
        with pytest.raises(IndexError):
            array[wrong]


def test_numbers():
    assert float(vyre.array([2.5])) == 2.5 and int(vyre.array([7])) == 7 and vyre.array([3]).item() == 3
    assert vyre.array([1]) and not vyre.array([0])
    with pytest.raises(ValueError):
        float(vyre.array([1, 2]))
    with pytest.raises(ValueError, match="not clear"):
        bool(vyre.array([1, 2]))


def test_mistakes_are_told():
    array = vyre.array(FLOATS)
    with pytest.raises(ValueError, match="no axis 2"):
        array.sum(2)
    with pytest.raises(TypeError, match="one axis"):
        array.sum((0, 1))
    with pytest.raises(TypeError, match="takes arrays"):
        vyre.sum("text")
    with pytest.raises(vyre.VyreError):
        vyre.top_k(vyre.array([1.0, 2.0]), 3)
    with pytest.raises(vyre.VyreError):
        vyre.bincount(vyre.array(np.zeros(4, np.uint32)), -1 % 2**63)
    with pytest.raises((vyre.VyreError, TypeError)):
        vyre.sum(np.zeros(3, [("x", "f4")]))
