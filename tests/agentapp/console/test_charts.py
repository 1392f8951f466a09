"""Charts drawn from figures: where lines go, what scales say, what is left out."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentapp.console import charts
from agentapp.console.charts import Series

WAITS = st.floats(1, 10**7)


def money(value: float) -> str:
    return f"${value:.2f}"


@pytest.mark.parametrize(
    ("most", "words"),
    [(0, ["1", "0"]), (3, ["3", "2", "1", "0"]), (12, ["15", "10", "5", "0"]), (19, ["20", "15", "10", "5", "0"])],
)
def test_counts_stand_on_whole_numbers(most: int, words: list[str]) -> None:
    assert charts.counts(most).words == words


def test_amounts_stand_on_round_ones() -> None:
    assert charts.amounts(20.1, money).words == ["$30.00", "$20.00", "$10.00", "$0.00"]
    assert charts.amounts(0.42, money).words == ["$0.60", "$0.40", "$0.20", "$0.00"]


@given(st.integers(0, 10**9))
def test_a_scale_of_counts_holds_what_it_is_made_for_and_has_few_lines(most: int) -> None:
    scale = charts.counts(most)
    assert 0 <= scale.place(most) <= 1
    assert 2 <= len(scale.words) <= 6
    assert len(set(scale.words)) == len(scale.words)


@given(WAITS, WAITS)
def test_a_scale_of_powers_holds_what_it_is_made_for_and_says_its_factor(one: float, other: float) -> None:
    least, most = sorted((one, other))
    scale = charts.doubling(least, most, lambda value: f"{value}")
    lines = [float(word) for word in scale.words]
    assert -1e-9 <= scale.place(least) <= scale.place(most) <= 1 + 1e-9
    assert len(lines) <= charts.MOST_LINES
    for above, below in pairwise(lines):
        assert above / below == scale.factor


def test_each_line_doubles_where_waits_are_near_each_other() -> None:
    scale = charts.doubling(40, 900, lambda value: f"{value:g}")
    assert (scale.words, scale.factor) == (["960", "480", "240", "120", "60", "30"], 2)
    assert scale.place(60) == pytest.approx(1 / 5)


def test_a_line_is_broken_where_there_is_no_value() -> None:
    drawn = charts.lines([Series("Median", "info", [1, None, 2, 3])], charts.counts(4), ["a", "b", "c", "d"])
    [(classes, path)] = drawn.paths
    assert classes == "s-info"
    assert path == "M66.67 50 L100 25"
    assert drawn.dots == [("s-info", "M0 75h0")]


def test_a_value_that_stands_alone_is_a_dot_and_no_line() -> None:
    drawn = charts.lines([Series("Median", "info", [None, None, 3])], charts.counts(4), ["a", "b", "c"])
    assert (drawn.paths, drawn.dots) == ([], [("s-info", "M100 25h0")])


def test_what_is_less_than_the_lowest_line_is_not_said_to_be_on_it() -> None:
    assert charts.doubling(0, 4, lambda value: f"{value:g} s").words == ["4 s", "2 s", "≤ 1 s"]
    assert charts.doubling(1, 4, lambda value: f"{value:g} s").words == ["4 s", "2 s", "1 s"]


def test_a_second_series_differs_by_its_dashes() -> None:
    both = [Series("Median", "info", [1, 1]), Series("95th percentile", "wait", [2, 2], dashed=True)]
    assert [classes for classes, _ in charts.lines(both, charts.counts(2), ["a", "b"]).paths] == [
        "s-info",
        "s-wait dash",
    ]


@given(st.lists(st.integers(0, 500), min_size=2, max_size=40))
def test_every_point_of_a_line_is_within_the_drawing(values: list[int]) -> None:
    drawn = charts.lines(
        [Series("Waiting", "info", values)], charts.counts(max(values)), ["x"] * len(values), filled=True
    )
    numbers = [float(number) for number in re.findall(r"[\d.]+", drawn.paths[0][1])]
    assert len(numbers) == 2 * len(values)
    assert all(0 <= number <= 100 for number in numbers)
    assert drawn.area.endswith("L100 100 L0 100Z")


def test_parts_of_a_column_stand_on_each_other_and_nothing_is_no_part() -> None:
    scale = charts.counts(4)
    drawn = charts.columns(["Mon", "Tue"], (("model", [2, 0]), ("tool", [1, 0])), scale, ["Mon: 3", "Tue: 0"], (), 4)
    first, second = drawn.columns
    assert [(hue, y) for hue, y, _ in first.parts] == [("f-model", "50"), ("f-tool", "25")]
    assert second.parts == []
    assert drawn.limit == "0"


def test_parts_of_a_bar_share_one_scale_with_the_bars_beside_it() -> None:
    bar = charts.bar("pay", (("ok", 6), ("info", 0), ("bad", 2)), 16, "6 approved, 0 changed, 2 rejected", "8")
    assert bar.parts == [("f-ok", "0", "37.2"), ("f-bad", "37.5", "12.2")]


def test_below_a_chart_are_a_few_labels_with_the_first_and_the_last() -> None:
    assert charts.thinned(["a", "b"]) == ["a", "b"]
    assert charts.thinned([str(number) for number in range(25)]) == ["0", "6", "12", "18", "24"]
