from datetime import UTC, datetime, timedelta

from agentapp.timescale import FOLD_WIDTH, Axis, Kind, Span, partition

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def span(kind: Kind, first: float, last: float) -> Span:
    return Span(kind, at(first), at(last))


def axis_of(*spans: Span, end: float) -> Axis:
    return Axis(partition(spans, START, at(end)), START)


def test_every_moment_is_in_exactly_one_part() -> None:
    parts = partition([span("model", 1, 3), span("tool", 2, 5), span("people", 4, 9)], START, at(10))
    assert [(part.kind, part.seconds) for part in parts] == [
        ("idle", 1), ("model", 2), ("tool", 2), ("people", 4), ("idle", 1),
    ]  # fmt: skip
    assert sum(part.seconds for part in parts) == 10


def test_calls_that_run_side_by_side_count_once() -> None:
    parts = partition([span("tool", 0, 4), span("tool", 1, 3), span("tool", 2, 6)], START, at(6))
    assert parts == [span("tool", 0, 6)]


def test_what_lies_outside_of_the_run_is_cut_off() -> None:
    assert partition([span("tool", -5, 2), span("model", 8, 20)], START, at(10)) == [
        span("tool", 0, 2), span("idle", 2, 8), span("model", 8, 10),
    ]  # fmt: skip


def test_nothing_is_one_idle_part() -> None:
    assert partition([], START, at(3)) == [span("idle", 0, 3)]
    assert partition([], START, START) == []


def test_a_night_of_waiting_takes_nine_percent_of_the_width() -> None:
    axis = axis_of(span("model", 0, 5), span("people", 5, 36_000), span("tool", 36_000, 36_005), end=36_005)
    (fold,) = axis.folds
    assert fold.labelled
    assert (fold.width, fold.seconds) == (FOLD_WIDTH, 35_995)
    assert axis.width(at(0), at(5)) == axis.width(at(36_000), at(36_005)) == (100 - FOLD_WIDTH) / 2
    assert axis.seconds == 10


def test_bars_keep_their_order_and_stay_on_the_axis() -> None:
    axis = axis_of(span("model", 0, 1), span("people", 1, 50), span("model", 50, 51), end=51)
    places = [axis.x(at(second)) for second in (-3, 0, 0.5, 1, 30, 50, 51, 99)]
    assert places == sorted(places)
    assert (places[0], places[-1]) == (0, 100)


def test_many_waits_leave_room_for_the_work() -> None:
    spans = [
        part for n in range(40) for part in (span("model", 2 * n, 2 * n + 1), span("people", 2 * n + 1, 2 * n + 2))
    ]
    axis = axis_of(*spans, end=80)
    assert len(axis.folds) == 40
    assert 0 < sum(fold.labelled for fold in axis.folds) < 8
    assert sum(fold.width for fold in axis.folds) < 46
    assert axis.x(at(80)) == 100


def test_a_short_pause_is_to_scale_and_a_long_one_is_folded() -> None:
    assert axis_of(span("model", 0, 5), span("model", 5.4, 10), end=10).folds == ()
    assert len(axis_of(span("model", 0, 5), span("model", 65, 70), end=70).folds) == 1


def test_ticks_are_round_and_not_crowded() -> None:
    axis = axis_of(span("model", 0, 14), span("people", 14, 500), end=500)
    assert [tick.seconds for tick in axis.ticks] == [0, 3, 6, 9]  # the next would run into "+8 min"
    assert len(axis_of(span("tool", 0, 86_400 * 30), end=86_400 * 30).ticks) <= 11


def test_a_wait_at_the_start_has_its_label_where_the_first_mark_would_be() -> None:
    axis = axis_of(span("model", 600, 606), end=606)
    (fold,) = axis.folds
    assert (fold.x, fold.labelled) == (0, True)
    # Its label is centred, so all of it is on the axis; no mark's label begins under it.
    assert fold.middle >= 6.5
    assert [tick.seconds for tick in axis.ticks] == [2, 4]
    assert all(tick.x >= fold.middle + 6.5 for tick in axis.ticks)


def test_a_run_without_any_time_has_an_axis() -> None:
    axis = axis_of(end=0)
    assert (axis.x(START), axis.folds, [tick.seconds for tick in axis.ticks]) == (0, (), [0])
