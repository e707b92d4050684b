"""Benchmarks and tuning."""

import kernels_in_python as ten
import numpy as np

import vyre


def test_bench_times_calls_and_shows_them():
    x = vyre.array(np.ones(1000, np.float32))
    timing = vyre.bench(ten.squares.on("cpu"), x, vyre.zeros(1000), seconds=0.1)
    assert len(timing.times) > 3 and 0 < timing.best <= timing.median and timing.bytes == 8000
    assert "median" in str(timing) and "<table>" in timing._repr_html_() and "<svg" in timing._repr_html_()
    again = np.zeros(1000, np.float32)
    assert vyre.bench(ten.squares.on("cpu"), np.ones(1000, np.float32), again, seconds=0.02).times
    assert (again == 2).all()


def test_tune_compares_launches_and_leaves_the_arguments():
    x, out = np.ones((64, 64), np.float32), np.zeros((64, 64), np.float32)
    try:
        tuned = vyre.tune(ten.heat, x, out, device="cpu")
    except vyre.errors.TooNoisy as noisy:  # Where other work has the machine, that is the right answer.
        assert noisy.code == "V1010" and "timings" in noisy.message
    else:
        assert tuned["evidence"]["candidates"] > 1 and "workgroup" in str(tuned) and "<table>" in tuned._repr_html_()
    assert (out == 0).all() and (x == 1).all()


def test_progress_is_quiet_where_there_is_no_terminal(capsys):
    vyre.bench(ten.squares.on("cpu"), np.ones(10, np.float32), np.zeros(10, np.float32), seconds=0.02)
    assert capsys.readouterr().err == ""


def test_explanations_of_python_kernels():
    kernel = ten.squares.on("cpu")
    kernel(np.ones(10, np.float32), np.zeros(10, np.float32))
    assert vyre.explain(kernel)["backend"] == "cpu"
