"""Calls in threads of their own: how many of them are made at once, and which come in time."""

import threading
from concurrent.futures import Future

import pytest

from agentapp import deadline
from agentapp.deadline import together, within


@pytest.fixture
def two_at_once(settings):
    settings.PARALLEL_READS = 2


def test_so_many_calls_as_are_allowed_run_at_once_and_no_more(two_at_once):
    both, lock, running, most = threading.Barrier(2), threading.Lock(), [], []

    def call():
        with lock:
            running.append(1)
            most.append(len(running))
        both.wait(20)  # two get this far together, or nobody gets an answer
        with lock:
            running.pop()
        return len(most)

    assert len(together(dict.fromkeys(range(8), call))) == 8
    assert max(most) == 2


def test_a_call_that_fails_gives_its_turn_to_the_next(two_at_once):
    def fail():
        raise LookupError("not there")

    with pytest.raises(LookupError):
        together(dict.fromkeys(range(6), fail))


@pytest.mark.parametrize("allowed", [0, 1])
def test_with_no_more_than_one_at_once_every_call_is_made_all_the_same(settings, allowed):
    settings.PARALLEL_READS = allowed
    assert together({number: lambda number=number: number for number in range(4)}) == {n: n for n in range(4)}


class EndsAtTheDeadline(Future):
    """Who waits for it is told that the time is up, and it ends before they look again."""

    def __init__(self):
        super().__init__()
        self.time_is_up, self.ended = threading.Event(), threading.Event()
        self.add_done_callback(lambda _: self.ended.set())

    def result(self, timeout=None):
        try:
            return super().result(timeout)
        except TimeoutError:
            self.time_is_up.set()
            assert self.ended.wait(20)
            raise


@pytest.fixture
def at_the_deadline(monkeypatch, transactional_db):
    """Make a call that ends just as the time is up."""
    future = EndsAtTheDeadline()
    monkeypatch.setattr(deadline, "Future", lambda: future)

    def make(act):
        return within(0.01, lambda: future.time_is_up.wait(20) and act())

    return make


def test_the_answer_of_a_call_that_ends_just_at_its_deadline_counts(at_the_deadline):
    assert at_the_deadline(lambda: "paid") == "paid"


def test_a_call_that_fails_just_at_its_deadline_says_why(at_the_deadline):
    def fail():
        raise LookupError("not there")

    with pytest.raises(LookupError, match="not there"):
        at_the_deadline(fail)


def test_a_call_that_times_out_itself_says_so(transactional_db):
    def fail():
        raise TimeoutError("the bank did not answer")

    with pytest.raises(TimeoutError, match="the bank did not answer"):
        within(20, fail)
