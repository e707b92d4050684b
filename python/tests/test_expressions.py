"""Operators on arrays: they mean what NumPy's do, and are computed in one kernel."""

import operator

import kernels_in_python as ten
import numpy as np
import pytest

import vyre

FLOATS = np.array([-3.5, -1.0, -0.25, 0.5, 2.0, 7.75], np.float32)
INTEGERS = np.array([-7, -4, -1, 1, 5, 8], np.int32)


@pytest.mark.parametrize("values", [FLOATS, INTEGERS], ids=["float32", "int32"])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "truediv", "floordiv", "mod", "lt", "le", "gt", "ge", "eq", "ne"])
def test_operators_are_numpys(name, values):
    apply = getattr(operator, name)
    other = np.array([2, -3, 4, -1, 3, -2], values.dtype)
    a, b = vyre.array(values), vyre.array(other)
    for mine, numpys in [(apply(a, b), apply(values, other)), (apply(a, 3), apply(values, 3)), (apply(3, b), apply(3, other))]:
        np.testing.assert_allclose(mine.numpy(), numpys, rtol=1e-6)
        assert isinstance(mine, vyre.Expression) and mine.shape == values.shape


def test_an_array_of_an_expression_stays_where_it_is_computed(monkeypatch):
    a = vyre.array(FLOATS)
    twice = a * 2
    with monkeypatch.context() as patched:
        patched.setattr(vyre.Expression, "__array__", lambda *_: pytest.fail("the value went to NumPy"))
        made = vyre.array(twice)
        assert vyre.array(twice, dtype="float32").dtype == np.float32 and vyre.array(a > 0).dtype == np.uint32
    made[0] = 9
    np.testing.assert_array_equal(twice.numpy(), FLOATS * 2)
    np.testing.assert_array_equal(made.numpy(), [9, *(FLOATS * 2)[1:]])
    assert vyre.array(twice, dtype="float64").dtype == np.float64


def test_a_chain_is_one_launch():
    a, b = vyre.array(FLOATS), vyre.array(FLOATS + 5)
    before = vyre.metrics()["dispatches"]
    result = vyre.sqrt(abs(a) + 1.0) * b**2 - a / 4 + vyre.clamp(a, -1, 1.0)
    assert vyre.metrics()["dispatches"] == before
    expected = np.sqrt(abs(FLOATS) + 1) * (FLOATS + 5) ** 2 - FLOATS / 4 + np.clip(FLOATS, -1, 1)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-6)
    assert vyre.metrics()["dispatches"] == before + 1
    np.testing.assert_allclose(result.eval().numpy(), expected, rtol=1e-6)
    assert vyre.metrics()["dispatches"] == before + 1


def test_shapes_types_and_numpys_own_arrays():
    rows = vyre.array(np.arange(12, dtype=np.float32).reshape(3, 4))
    column = np.array([[1], [2], [3]], np.float32)
    np.testing.assert_array_equal((rows * column).numpy(), np.arange(12).reshape(3, 4) * column)
    mixed = column + rows
    assert isinstance(mixed, vyre.Expression) and mixed.shape == (3, 4)
    counts = vyre.array(INTEGERS)
    assert (counts + 1).dtype == np.int32 and (counts + 0.5).dtype == np.float32 and (counts / 2).dtype == np.float32
    assert (counts + vyre.array(FLOATS)).dtype == np.float32
    np.testing.assert_array_equal((~counts & 7 ^ 1 << 2).numpy(), ~INTEGERS & 7 ^ 1 << 2)
    np.testing.assert_array_equal(vyre.array(FLOATS).astype("int32").numpy(), FLOATS.astype(np.int32))
    np.testing.assert_array_equal(vyre.select(counts > 0, counts, -counts).numpy(), abs(INTEGERS))
    np.testing.assert_array_equal(vyre.maximum(counts, 2).numpy(), np.maximum(INTEGERS, 2))
    with pytest.raises(vyre.VyreError, match="don't fit"):
        rows + vyre.array(FLOATS)
    with pytest.raises(TypeError, match="int32 and uint32"):
        counts + vyre.array(np.ones(6, np.uint32))
    with pytest.raises(TypeError):
        rows + "text"
    with pytest.raises(ValueError, match="not clear"):
        bool(counts > 0)


def test_expressions_are_arguments_of_kernels_and_values_when_made():
    a = vyre.array(FLOATS)
    doubled = a * 2.0
    a.write(np.zeros_like(FLOATS))
    np.testing.assert_allclose(ten.squares.on("cpu")(doubled).numpy(), (2 * FLOATS) ** 2 + 1, rtol=1e-6)
    with pytest.raises(vyre.errors.InvalidUse, match="can't be written"):
        ten.squares.on("cpu")(a, doubled)
    assert len({a, doubled}) == 2


def test_results_that_would_go_into_a_copy_are_refused():
    class Copied:
        shape = (6,)

        def __array__(self, dtype=None, copy=None):
            return np.zeros(6, np.float32)

    assert ten.squares.on("cpu")(Copied()).tolist() == [1] * 6
    with pytest.raises(vyre.errors.InvalidUse, match="can't be written"):
        ten.squares.on("cpu")(FLOATS, Copied())
