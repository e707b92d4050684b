"""Arguments that can't be used, each a clear exception."""

import threading

import kernels_in_python as ten
import numpy as np
import pytest

import vyre


@pytest.fixture
def squares():
    return ten.squares.on("cpu")


class OnADevice:
    """A tensor that says that it is in a GPU's memory."""

    shape = (4,)

    def __init__(self, kind):
        self.kind = kind

    def __dlpack__(self, **options):
        if self.kind != 2:
            raise AssertionError("its memory must not be asked for")
        return "no capsule"

    def __dlpack_device__(self):
        return (self.kind, 0)


class OnCuda:
    """An array that says of its memory what can't be."""

    shape, ndim = (4,), 1

    def __init__(self, **said):
        self.__cuda_array_interface__ = {"shape": (4,), "typestr": "<f4", "data": (4096, False), "version": 3, "stream": 1, **said}


@pytest.mark.parametrize(
    "values",
    [
        np.zeros(4, ">f4"),
        np.zeros(4, bool),
        np.zeros(4, complex),
        np.zeros(4, "U3"),
        np.zeros(4, "M8[s]"),
        np.zeros(4, object),
        np.zeros(4, np.float64),
        np.zeros(4, np.int32),
        np.zeros(4, [("x", "f4")]),
    ],
    ids=lambda values: str(values.dtype),
)
def test_elements_of_another_type(squares, values):
    with pytest.raises(vyre.VyreError) as raised:
        squares(values, np.zeros(4, np.float32))
    assert isinstance(raised.value, ValueError) and raised.value.fix and "a" in str(raised.value)
    with pytest.raises((vyre.VyreError, TypeError)):
        squares(np.zeros(4, np.float32), values)


def test_memory_that_is_elsewhere_or_gone(squares):
    out = np.zeros(4, np.float32)
    for kind, said in [(10, "of kind 10, which is neither"), (2, "it gives no capsule")]:
        with pytest.raises(vyre.errors.InvalidUse, match=said):
            squares(OnADevice(kind), out)
    for said, told in [
        ({"typestr": "<c8"}, "no elements of type <c8"),
        ({"typestr": ">f4"}, "no elements of type >f4"),
        ({"data": (4100, False)}, "within a block of 16 bytes"),
        ({"strides": (8,)}, "do not lie one behind another"),
        ({"shape": (1 << 40, 1 << 40)}, "more bytes than can be counted"),
    ]:
        with pytest.raises(vyre.errors.InvalidUse, match=told):
            squares(OnCuda(**said), out)
    with pytest.raises(vyre.errors.InvalidUse, match="read-only"):
        squares(out, OnCuda(data=(4096, True)))
    # There is no such memory, or no such device at all.
    with pytest.raises(vyre.VyreError):
        squares(OnCuda(), out)
    view = memoryview(bytearray(16)).cast("f")
    squares(view, out)
    assert out.tolist() == [1] * 4
    view.release()
    with pytest.raises(ValueError, match="released"):
        squares(view, out)


def test_an_array_can_not_shrink_while_it_is_lent():
    import array

    values = array.array("f", [1, 2, 3])
    assert ten.squares.on("cpu")(values).tolist() == [2, 5, 10]
    values.append(4)
    assert ten.squares.on("cpu")(values).tolist() == [2, 5, 10, 17]


def test_layouts(squares):
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    heat = ten.heat.on("cpu")
    out = np.zeros((4, 3), np.float32)
    heat(x.T, out)  # An input that is not contiguous is copied.
    straight = np.zeros((4, 3), np.float32)
    heat(np.ascontiguousarray(x.T), straight)
    np.testing.assert_array_equal(out, straight)
    with pytest.raises(vyre.errors.InvalidUse, match="one behind another"):
        heat(np.ascontiguousarray(x.T), np.zeros((3, 4), np.float32).T)
    fixed = np.zeros(4, np.float32)
    fixed.flags.writeable = False
    with pytest.raises(vyre.errors.InvalidUse, match="read-only"):
        squares(fixed, fixed)


def test_masks_are_not_forgotten(squares):
    masked = np.ma.masked_array(np.ones(4, np.float32), [1, 0, 0, 0])
    for given in (lambda: squares(masked, np.zeros(4, np.float32)), lambda: vyre.array(masked)):
        with pytest.raises(vyre.errors.InvalidUse, match="with a mask") as raised:
            given()
        assert "filled" in raised.value.fix
    assert squares(masked.filled(3)).tolist() == [10, 2, 2, 2]


def test_nothing_to_do(squares):
    empty = np.zeros(0, np.float32)
    squares(empty, empty.copy())
    assert squares(empty).numpy().shape == (0,)
    for shape in ((0, 4), (4, 0)):
        ten.heat.on("cpu")(np.zeros(shape, np.float32), np.zeros(shape, np.float32))
    squares.interpret(empty, empty.copy())


def test_more_than_there_is():
    with pytest.raises((ValueError, MemoryError, OverflowError)):
        vyre.zeros((1 << 40, 1 << 40))
    with pytest.raises((MemoryError, vyre.VyreError)):
        vyre.zeros(1 << 46).numpy()


def test_numbers_that_do_not_fit():
    x = np.zeros(4, np.float32)
    for wrong in ("1", None, [1.0], 1j):
        with pytest.raises(TypeError):
            ten.saxpy.on("cpu")(wrong, x, x, x.copy())
    mandelbrot = ten.mandelbrot.on("cpu")
    for wrong in (1.5, 2**31, -(2**31) - 1):
        with pytest.raises(TypeError, match="`steps` is i32"):
            mandelbrot(wrong, np.zeros((2, 2), np.int32))


LOCK = threading.Lock()
ARRAY = np.zeros(3, np.float32)


def test_arguments_that_only_seem_to_fit():
    x, square = np.zeros(4, np.float32), np.zeros((2, 2), np.float32)
    # As many numbers of axes as are asked for, but of others.
    with pytest.raises(TypeError, match="`a` has 2 axes"):
        ten.heat(np.zeros((2, 2, 2), np.float32), x)
    with pytest.raises(OverflowError, match="`alpha` is f32"):
        ten.saxpy(1e300, x, x, x.copy())
    with pytest.raises(TypeError, match="no parameter 'a1'"):
        ten.heat(square, a1=square.copy())


def test_what_can_not_be_captured_is_said_by_name():
    def locked(out: vyre.f32[:]):
        out[vyre.grid(1)] = LOCK

    def captured(out: vyre.f32[:]):
        out[vyre.grid(1)] = ARRAY[0]

    with pytest.raises(vyre.errors.KernelError, match="`LOCK`, which is a lock, can't be in a kernel"):
        vyre.kernel(locked)
    with pytest.raises(vyre.errors.KernelError, match="`ARRAY` is an array that is not passed"):
        vyre.kernel(captured)


def test_devices_and_sizes_that_are_not_there(squares):
    x = np.zeros(4, np.float32)
    with pytest.raises(vyre.VyreError):
        ten.squares.on("abacus")(x, x.copy())
    with pytest.raises(TypeError, match="workgroup"):
        vyre.kernel(workgroup=())(ten.squares.function)
    with pytest.raises(TypeError, match="workgroup"):
        vyre.kernel(workgroup=(8, 0))(ten.squares.function)
    with pytest.raises(vyre.VyreError):
        vyre.kernel(workgroup=(1 << 20,))(ten.squares.function).on("cpu")(x, x.copy())
    with pytest.raises((TypeError, OverflowError)):
        squares[-1]


def test_a_device_that_is_not_there_was_not_lost(squares):
    absent = next((device for device in vyre.devices() if device.absent and device.id in ("cuda", "wgpu")), None)
    if absent is None:
        pytest.skip("every device is here")
    with pytest.raises(vyre.errors.DeviceAbsent) as refused:
        ten.squares.on(absent.id)(np.ones(4, np.float32), np.zeros(4, np.float32))
    assert refused.value.fix
