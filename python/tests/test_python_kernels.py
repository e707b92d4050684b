"""Kernels in Python: the device, the interpreter and NumPy agree; mistakes are shown where they stand."""

import inspect
import math
import pickle

import kernels_in_python as ten
import numpy as np
import pytest

import vyre

BY_NAME = {kernel.name: kernel for kernel in ten.KERNELS}


@pytest.mark.parametrize("name", BY_NAME)
def test_device_interpreter_and_numpy_agree(name):
    kernel = BY_NAME[name].on("cpu")
    args, again = ten.arguments(name), ten.arguments(name)
    kernel(*args)
    np.testing.assert_allclose(args[-1], ten.expected(name, args), rtol=2e-5, atol=1e-6)
    kernel.interpret(*again)
    np.testing.assert_allclose(args[-1], again[-1], rtol=2e-5, atol=1e-6)


def run(function, *args, **options):
    """A kernel of a function on the CPU, and the same interpreted; both have to give the same in the last argument."""
    kernel = vyre.kernel(**options)(function).on("cpu") if options else vyre.kernel(function).on("cpu")
    again = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    kernel(*args)
    kernel.interpret(*again)
    np.testing.assert_allclose(args[-1], again[-1], rtol=1e-5)
    return args[-1]


INTEGERS = np.array([-9, -8, -7, -1, 0, 1, 5, 7, 8, 9], np.int32)


def test_integers_divide_as_in_python():
    def divide(a: vyre.i32[:], by: vyre.i32, out: vyre.i32[:, :]):
        i = vyre.grid(1)
        if i < a.size:
            out[i, 0] = a[i] // by
            out[i, 1] = a[i] % by
            out[i, 2] = a[i] // 4
            out[i, 3] = a[i] % -4
            out[i, 4] = i // 3 + i % 3

    for by in (3, -3, 7, -1):
        out = run(divide, INTEGERS, by, np.zeros((10, 5), np.int32))
        at = np.arange(10)
        expected = [INTEGERS // by, INTEGERS % by, INTEGERS // 4, INTEGERS % -4, at // 3 + at % 3]
        np.testing.assert_array_equal(out, np.stack(expected, 1))


def test_slashes_and_powers_are_pythons():
    def compute(a: vyre.i32[:], x: vyre.f32[:], out: vyre.f32[:, :]):
        i = vyre.grid(1)
        if i < a.size:
            out[i, 0] = a[i] / 4
            out[i, 1] = a[i] ** 3
            out[i, 2] = x[i] ** 2.0
            out[i, 3] = x[i] ** -2
            out[i, 4] = x[i] % 1.5
            out[i, 5] = x[i] // 1.5
            out[i, 6] = 2.0 ** a[i]
            out[i, 7] = 7 // 2 + 2**5 - 7 % 4

    x = np.linspace(-3.2, 4.1, 10, dtype=np.float32)
    out = run(compute, INTEGERS, x, np.zeros((10, 8), np.float32))
    expected = [INTEGERS / 4, INTEGERS**3.0, x**2, x**-2.0, x % 1.5, x // 1.5, 2.0**INTEGERS, np.full(10, 32)]
    np.testing.assert_allclose(out, np.stack(expected, 1), rtol=1e-5, atol=1e-5)


def test_signed_and_unsigned_compare_as_numbers():
    def compare(a: vyre.i32[:], n: vyre.u32, out: vyre.i32[:, :]):
        i = vyre.grid(1)
        if i < a.size:
            out[i, 0] = 1 if a[i] < n else 0
            out[i, 1] = 1 if n <= a[i] else 0
            out[i, 2] = vyre.i32(a[i] == n) + 2 * vyre.i32(n != a[i])

    out = run(compare, INTEGERS, np.uint32(7), np.zeros((10, 3), np.int32))
    np.testing.assert_array_equal(out, np.stack([INTEGERS < 7, INTEGERS >= 7, np.where(INTEGERS == 7, 1, 2)], 1))


def test_a_number_that_is_passed_bounds_the_launch():
    @vyre.kernel
    def fill(n: vyre.u32, value: vyre.f32, out: vyre.f32[:]):
        i = vyre.grid(1)
        if i < n:
            out[i] = value

    out = np.zeros(10, np.float32)
    fill.on("cpu")(4, 2.5, out)
    np.testing.assert_array_equal(out, [2.5] * 4 + [0] * 6)


SCALE = 3
TABLE = (1.0, 10.0)
USE_TABLE = True


def scaled(x, by=SCALE):
    return x * by


def fill(values, start):
    for k in range(values.size):
        values[k] = start + k


def row_sum(a, row: vyre.i32):
    total = 0.0
    for j in range(a.shape[1]):
        total += a[row, j]
    return total


def test_constants_are_captured_and_helpers_take_numbers_and_arrays():
    here = 0.5

    def compute(a: vyre.f32[:, :], negate: vyre.bool_, out: vyre.f32[:]):
        i = vyre.grid(1)
        if i >= a.shape[0]:
            return
        mine = vyre.local((4,), vyre.f32)
        fill(mine, start=scaled(i) + here)
        result = row_sum(a, i) + mine[3]
        if USE_TABLE:
            result += TABLE[1]
        else:
            result.this_is_not_translated()  # noqa: B018
        out[i] = -result if negate else result

    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    for negate in (False, True):
        out = run(compute, a, negate, np.zeros(3, np.float32))
        expected = a.sum(1) + 3 * np.arange(3) + 0.5 + 3 + 10
        np.testing.assert_allclose(out, -expected if negate else expected)


def test_loops_branches_and_bits():
    def collatz(a: vyre.u32[:], out: vyre.i32[:]):
        """Steps to one, at most a hundred."""
        i = vyre.grid(1)
        if i >= a.size:
            return
        x = a[i]
        steps = 0
        for n in range(100, 0, -1):
            if x == 1:
                break
            elif x & 1 == 0:
                x >>= 1
            else:
                x = 3 * x + 1
            steps = 101 - n
        out[i] = steps if vyre.popcount(x) == 1 else -1

    out = run(collatz, np.array([1, 2, 3, 7, 27], np.uint32), np.zeros(5, np.int32))
    np.testing.assert_array_equal(out, [0, 1, 7, 16, -1])


def test_atomics_give_what_was_there():
    def take(tickets: vyre.i32[:], out: vyre.i32[:]):
        i = vyre.grid(1)
        if i < out.size:
            out[i] = vyre.atomic_add(tickets, 0, 2)
            vyre.atomic_max(tickets, 1, i)
            vyre.atomic_cas(tickets, 2, 0, 5)

    kernel, tickets, out = vyre.kernel(take).on("cpu"), np.zeros(3, np.int32), np.zeros(300, np.int32)
    kernel(tickets, out)
    np.testing.assert_array_equal(np.sort(out), np.arange(0, 600, 2))
    np.testing.assert_array_equal(tickets, [600, 299, 5])


def test_mathematics():
    def compute(x: vyre.f32[:], out: vyre.f32[:, :]):
        i = vyre.grid(1)
        if i < x.size:
            v = x[i]
            out[i, 0] = math.sin(v) + np.cos(v) + vyre.tan(v)
            out[i, 1] = math.atan2(v, 2.0) + math.hypot(v, 1) + math.log10(v) + vyre.rsqrt(v)
            out[i, 2] = math.floor(v) + vyre.fract(v) + round(v * 10.0) + math.ceil(v) + abs(-v)
            out[i, 3] = vyre.clamp(v, 0.5, 1.5) + min(v, 1, 2.0) + max(v, 1.0) + math.pi + math.pow(v, 1.5)
            out[i, 4] = 1.0 if math.isnan(v - v) or math.isinf(v / 0.0) and not math.isfinite(math.nan) else 0.0
            out[i, 5] = vyre.bitcast(vyre.f32, vyre.bitcast(vyre.u32, v) ^ 0x80000000)

    x = np.linspace(0.1, 3.3, 20, dtype=np.float32)
    out = run(compute, x, np.zeros((20, 6), np.float32))
    np.testing.assert_allclose(out[:, 0], np.sin(x) + np.cos(x) + np.tan(x), rtol=1e-4)
    np.testing.assert_array_equal(out[:, 5], -x)


def test_results_that_are_left_out_are_made():
    x = np.arange(5, dtype=np.float32)
    result = ten.squares.on("cpu")(x)
    assert isinstance(result, vyre.Array)
    np.testing.assert_array_equal(result.numpy(), x * x + 1)
    np.testing.assert_array_equal(ten.saxpy.on("cpu")(2.0, y=x, x=x).numpy(), 3 * x)
    launched = ten.squares.on("cpu").launch(vyre.array(x)).wait()
    np.testing.assert_array_equal(launched.numpy(), x * x + 1)


def test_arguments_that_do_not_fit_are_refused():
    x = np.zeros(5, np.float32)
    saxpy = ten.saxpy.on("cpu")
    with pytest.raises(TypeError, match="`alpha` is f32, and 'two' was given"):
        saxpy("two", x, x, x.copy())
    with pytest.raises(TypeError, match="`x` has 1 axes.*shape \\(5, 1\\)"):
        saxpy(1.0, x[:, None], x, x.copy())
    with pytest.raises(TypeError, match="no parameter 'z'; it has alpha, x, y, out"):
        saxpy(1.0, x, z=x)
    with pytest.raises(TypeError, match="needs `alpha`"):
        saxpy(x=x, y=x)
    with pytest.raises(TypeError, match="takes 4 arguments"):
        saxpy(1.0, x, x, x, x)
    with pytest.raises(TypeError, match="shape of a result"):
        ten.heat.on("cpu")(np.zeros((3, 3), np.float32))
    with pytest.raises(vyre.errors.InvalidUse, match="float64"):
        saxpy(1.0, x.astype(np.float64), x, x.copy())
    with pytest.raises(IndexError, match="`a\\[5\\]` is outside of its shape \\(5,\\)"):
        vyre.kernel(reads_outside).interpret(x, x.copy())


def reads_outside(a: vyre.f32[:], out: vyre.f32[:]):
    i = vyre.grid(1)
    if i < a.size:
        out[i] = a[i + 1]


def test_kernels_travel_without_what_they_captured():
    kernel = pickle.loads(pickle.dumps(ten.nbody)).on("cpu")
    args = ten.arguments("nbody")
    kernel(*args)
    np.testing.assert_allclose(args[-1], ten.expected("nbody", args), rtol=2e-5)
    again = ten.arguments("nbody")
    kernel.interpret(*again)
    np.testing.assert_allclose(args[-1], again[-1], rtol=2e-5)


def written_out(a: vyre.f32[:], out: vyre.f32[:]):
    i = vyre.grid(1)
    if i < a.size:
        held = vyre.local(4, vyre.f32)
        total = 0.0
        for k in vyre.static_range(4):
            part = vyre.local(2, vyre.f32)
            value = a[i] * k
            part[k % 2] += value
            if k == 2:
                held[0] = 100.0
            last = part[0] + part[1]
            held[k] += last
            for j in vyre.static_range(3, 0, -2):
                total += 10.0 * j
        for j in range(4):
            total += held[j]
        out[i] = total + last


def test_static_ranges_are_written_out():
    kernel = vyre.kernel(written_out).on("cpu")
    assert "for (var k" not in kernel.source and kernel.source.count("100.0") == 1
    x = np.arange(5, dtype=np.float32)
    again = np.zeros_like(x)
    kernel.interpret(x, again)
    assert kernel(x).tolist() == again.tolist() == (260 + 9 * x).tolist()


def test_static_ranges_have_constant_bounds_and_no_break():
    def bounds(a: vyre.f32[:]):
        for k in vyre.static_range(a.size):
            a[k] = 1.0

    def many(a: vyre.f32[:]):
        for k in vyre.static_range(1000):
            a[k] = 1.0

    def leaves(a: vyre.f32[:]):
        for k in vyre.static_range(4):
            if a[k] > 1.0:
                break

    def twice(a: vyre.f32[:]):
        for k in vyre.static_range(4):
            a[k] = unknown  # noqa: F821

    for wrong, said in ((bounds, "constant integer"), (many, "1000 rounds"), (leaves, "`break` or `continue`"), (twice, "unknown")):
        with pytest.raises(vyre.errors.KernelError, match=said) as raised:
            vyre.kernel(wrong)
        assert str(raised.value).count("error[") == 1


def rounded_twice(a: vyre.f32[:], out: vyre.f32[:]):
    i = vyre.grid(1)
    if i < a.size:
        out[i] = a[i] * a[i] - 1.00048828125


def test_fast_arithmetic_is_asked_for_and_travels():
    x = np.full(9, 1 + 2**-12, np.float32)
    exact, fast = vyre.kernel(rounded_twice).on("cpu"), vyre.kernel(math="fast")(rounded_twice).on("cpu")
    assert (exact.math, fast.math, fast[1].domain(9).math) == ("exact", "fast", "fast")
    # The square rounds to the constant; where both are rounded once, what was lost is left.
    assert exact(x).tolist() == [0.0] * 9 and fast(x).tolist() in ([0.0] * 9, [2.0**-24] * 9)
    assert (vyre.explain(exact)["math"], vyre.explain(fast)["math"]) == ("exact", "fast")
    again = pickle.loads(pickle.dumps(fast))
    assert again.math == "fast" and again(x).tolist() == fast(x).tolist()
    text = vyre.wgsl(fast.source, math="fast")
    assert text.math == "fast" and pickle.loads(pickle.dumps(text)).math == "fast" and vyre.wgsl(fast.source).math == "exact"
    with pytest.raises(ValueError, match='exact or fast, not "quick"'):
        vyre.wgsl(fast.source, math="quick")
    with pytest.raises(ValueError, match="exact or fast"):
        vyre.kernel(math="quick")(rounded_twice)


def test_a_barrier_that_some_miss_is_an_error_in_both():
    def wrong(a: vyre.f32[:]):
        i = vyre.grid(1)
        if i < a.size:
            vyre.barrier()
            a[i] = 1.0

    with pytest.raises(vyre.errors.KernelError) as raised:
        vyre.kernel(wrong)
    line = inspect.getsourcelines(wrong)[1] + 3
    assert raised.value.code == "V0115" and raised.value.place[0] == line
    assert f"line {line}, in wrong\n    vyre.barrier()\n    ^^^^" in str(raised.value)


def mistakes(a: vyre.f32[:], out: vyre.f32[:]):
    i = vyre.grid(1)
    x = a[i] + missing
    y = 1
    y = a[i]
    out[i] = x + y + a.sum()
    print(y)


def test_all_mistakes_are_shown_where_they_stand():
    with pytest.raises(vyre.errors.KernelError) as raised:
        vyre.kernel(mistakes)
    first = inspect.getsourcelines(mistakes)[1]
    error, text = raised.value, str(raised.value)
    assert [place[0] - first for _, _, _, place in error.all] == [2, 4, 6] and error.place == (first + 2, 16)
    assert "    x = a[i] + missing\n               ^^^^^^^" in text and __file__ in text
    assert "`y` is i32 since line" in text and "`print` can't be in a kernel" in text
    assert pickle.loads(pickle.dumps(error)).place == error.place


def refused(body, *names):
    """The message for a kernel with these statements, written to a file so that its source can be read."""
    import linecache

    text = "import math, vyre, numpy as np\nOUTSIDE = np.zeros(3)\ndef k(a: vyre.f32[:], n: vyre.u32[:], out: vyre.f32[:]):\n    i = vyre.grid(1)\n"
    text += "".join(f"    {line}\n" for line in body.split("\n"))
    name = f"<{body}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    scope = {}
    exec(compile(text, name, "exec"), scope)
    with pytest.raises(vyre.errors.KernelError) as raised:
        vyre.kernel(scope["k"])
    assert name in str(raised.value) and "^" in str(raised.value) and raised.value.fix
    return str(raised.value)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("x = [1, 2]", "a list can't be"),
        ("x = {}", "a dict can't be"),
        ("x = [j for j in range(3)]", "a comprehension can't be"),
        ("f = lambda x: x", "a lambda can't be"),
        ("x = 'text'", "str 'text' can't be"),
        ("with open('x'): pass", "`with` can't be"),
        ("try:\n    pass\nexcept E: pass", "`try` can't be"),
        ("raise ValueError", "`raise` can't be"),
        ("assert i > 0", "`assert` can't be"),
        ("import os", "`import` can't be"),
        ("global z", "`global` can't be"),
        ("def f(): pass", "a function inside a function can't be"),
        ("yield i", "`yield` can't be|no effect"),
        ("out[i] = sum(a)", "`sum` can't be.*\n.*\n.*\n.*\n.*for` loop|is an array"),
        ("for x in a: pass", "a loop over this can't be"),
        ("for j in range(3): pass\nelse: pass", "`else` of a loop can't be"),
        ("for j in range(0, 9, i): pass", "a step that is not a constant"),
        ("for j in range(2.5): pass", "`range` of a float"),
        ("for j in range(3): j = 1\n", "is the variable of a loop|loop around|assigned elsewhere"),
        ("for j in range(3): pass\nout[i] = j", "outside of its loop"),
        ("out[i] = a[1:2]", "a slice can't be"),
        ("out[i] = a[-1]", "a\\[a.size - 1\\]"),
        ("out[i] = a[0.5]", "the index is"),
        ("out[i] = a[i, 0]", "has 1 axes, and 2 indices"),
        ("out[i] = a[i][0]", "Write both in one"),
        ("out[i] = a", "`a` is an array"),
        ("out[i] = a.T", "`.T` of an array can't be"),
        ("out[i] = OUTSIDE[i]", "an array that is not passed"),
        ("out[i] = n[i] + i", "u32 on one side and an? i32|i32 on the other"),
        ("n[i] = a[i]", "an element of `n` is u32, and this is f32"),
        ("n[i] = -1", "-1 is no u32"),
        ("out[i] = 1e39", "too large for 32 bits"),
        ("x = 5000000000", "is no i32"),
        ("if i > 3:\n    x = 1.0\nout[i] = x", "no value on some way"),
        ("out[i] = x\nx = 1.0", "no value yet"),
        ("out[i] = i ** i", "a power of integers whose exponent"),
        ("out[i] = a @ a", "is an array|`@` can't"),
        ("out[i] = a[i] & 1", "works on integers"),
        ("out[i] = -n[i]", "has no negative numbers"),
        ("if a[i] and i: pass", "`and` of numbers"),
        ("x = a[i] is None", "can't be in a kernel"),
        ("vyre.atomic_add(a, i, 1.0)", "an atomic operation on f32 can't be"),
        ("s = vyre.shared((i,), vyre.f32)", "no constant"),
        ("s = vyre.local((99999,), vyre.f32)", "more than a workgroup"),
        ("if i > 2:\n    s = vyre.shared((4,), vyre.f32)", "only some may make"),
        ("return i", "a kernel gives nothing back"),
        ("x, y = vyre.grid(1)", "1 values for 2 names"),
        ("x = vyre.grid(2)", "ids of several axes"),
        ("out[i] = math.gamma(1.0)", "`math.gamma` can't be"),
        ("out.x = 1", "assigning to an attribute can't be"),
        ("vyre.sqrt(2.0)", "not used"),
        ("a[i]", "no effect"),
        ("match i:\n    case 1: pass", "`match` can't be"),
        ("x = (y := 1)", "`:=` can't be"),
    ],
)
def test_what_kernels_do_not_have_is_said_by_name(body, told):
    import re

    assert re.search(told, refused(body)), refused(body)


def test_functions_that_call_themselves_and_ids_in_helpers_are_refused():
    def calls_itself(x):
        return calls_itself(x)

    def asks(x):
        return x + vyre.grid(1)

    def one(out: vyre.f32[:]):
        out[vyre.grid(1)] = calls_itself(1.0)

    def other(out: vyre.i32[:]):
        out[vyre.grid(1)] = asks(1)

    with pytest.raises(vyre.errors.KernelError, match="calls itself"):
        vyre.kernel(one)
    with pytest.raises(vyre.errors.KernelError, match="in asks(.|\n)*Ask for it in the kernel"):
        vyre.kernel(other)


def test_parameters_need_annotations():
    def bare(a, *rest, n: str, m: vyre.i32 = 1):
        pass

    with pytest.raises(vyre.errors.KernelError) as raised:
        vyre.kernel(bare)
    text = str(raised.value)
    assert "`a` has no annotation" in text and "`*rest`" in text and "annotated as <class 'str'>" in text and "a default value" in text


def test_words_outside_of_kernels_say_so():
    with pytest.raises(RuntimeError, match="vyre.grid has a meaning only in a kernel"):
        vyre.grid(1)
    with pytest.raises(TypeError, match="one to four axes"):
        vyre.f32[1:2]


def test_interpreted_invocations_that_miss_a_barrier_are_told():
    from vyre._python.interpret import Checked, run

    def missed(a):
        if vyre.local_id() < 2:
            vyre.barrier()
        a[vyre.local_id()] = 1

    with pytest.raises(RuntimeError, match="all have to meet it"):
        run(missed, [Checked("a", np.zeros(4))], (1, 1, 1), (1, 1, 4), has_barriers=True)

    def fails(a):
        vyre.barrier()
        if vyre.local_id() == 3:
            raise ValueError("the third")
        vyre.barrier()

    with pytest.raises(ValueError, match="the third"):
        run(fails, [Checked("a", np.zeros(4))], (1, 1, 1), (1, 1, 4), has_barriers=True)


def test_names_of_wgsl_and_values_before_assignment():
    def swap(array: vyre.f32[:], type: vyre.f32[:], out: vyre.f32[:, :]):
        loop = vyre.grid(1)
        if loop < array.size:
            fn, let = array[loop], type[loop]
            fn, let = let, vyre.f32(int(fn % 2.0))
            out[loop, 0] = fn
            out[loop, 1] = let

    a, b = np.arange(5, dtype=np.float32), np.full(5, 7, np.float32)
    out = run(swap, a, b, np.zeros((5, 2), np.float32))
    np.testing.assert_array_equal(out, np.stack([b, a % 2], 1))


def test_names_that_wgsl_keeps_for_itself():
    @vyre.kernel
    def double(__a: vyre.f32[:], vy_: vyre.f32[:], let: vyre.f32[:]):
        i = vyre.grid(1)
        if i < __a.size:
            var = __a[i]
            for _ in range(3):
                var = var * 2.0
            let[i] = var + vy_[i]

    out = np.zeros(4, np.float32)
    double.on("cpu")(np.ones(4, np.float32), np.ones(4, np.float32), out)
    assert out.tolist() == [9] * 4
