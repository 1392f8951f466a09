"""Calls in threads of their own: how many of them are made at once."""

import threading

import pytest

from agentapp.deadline import together


@pytest.fixture
def two_at_once(settings):
    settings.PARALLEL_READS = 2


def test_so_many_calls_as_are_allowed_run_at_once_and_no_more(two_at_once):
    both, lock, running, most = threading.Barrier(2), threading.Lock(), [], []

    def call():
        with lock:
            running.append(1)
            most.append(len(running))
        both.wait(20)  # two come this far together, or nobody gets an answer
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
