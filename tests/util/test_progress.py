"""How well the steps of a solve are foreseen."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcdjax.util.progress import SteadyTotal, expected_steps, expected_total

# The relative change of W in each step of a start of WikiText-2: 200 topics, tol 0.03.
TEXT = (0.3062, 0.3303, 0.1726, 0.1148, 0.0885, 0.0704, 0.0568, 0.0468, 0.0397, 0.0346, 0.0306, 0.0275)


def test_the_steps_of_a_text_are_foreseen():
    found = [expected_steps(np.array(TEXT[:taken]), 0.03, 200) for taken in range(len(TEXT))]
    assert found[:4] == [None] * 4
    assert all(total is not None and abs(total - len(TEXT)) <= 2 for total in found[4:])


def test_where_nothing_falls_max_steps_are_expected():
    rising = np.linspace(0.01, 0.2, 10)
    assert expected_steps(rising, 1e-3, 70) == 70
    assert expected_steps(np.zeros(10), 1e-3, 70) == 70
    assert expected_steps(np.array(TEXT), 0.0, 70) == 70
    assert expected_steps(np.array(TEXT), -1.0, 70) == 70


@given(
    st.lists(st.floats(0, 10) | st.just(float("nan")), max_size=30),
    st.floats(1e-12, 1),
    st.integers(1, 10_000),
)
def test_estimates_stay_between_the_steps_taken_and_max_steps(changes, tol, more):
    max_steps = len(changes) + more
    found = expected_steps(np.array(changes), tol, max_steps)
    assert found is None or len(changes) < found <= max_steps


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 1000)), min_size=1))
def test_bars_never_move_back(reports):
    steady, done, shown = SteadyTotal(), 0, []
    for more, left in reports:
        done += more
        total = steady(done, done + left)
        assert done <= total <= done + left
        shown.append((done, total))
    for (earlier, total), (later, later_total) in itertools.pairwise(shown):
        assert later / later_total >= earlier / total - 1 / total  # totals are whole numbers


def test_starts_that_wait_are_taken_to_need_what_the_others_do():
    assert expected_total([10], [None, 20], [0, 18], 0.1, 30) == 10 + 20 + 15 + 15 + 18
    assert expected_total([], [None], [], 0.1, 30) is None
    assert expected_total([10, 12], [], [], 0.1, 30) == 22
    assert expected_total([30], [None], [0, 0], 0.0, 30) == 120


@pytest.mark.parametrize("expected", [0, 5])
def test_a_bar_without_steps(expected):
    assert SteadyTotal()(0, expected) == expected
