"""Servers that hang tie up few threads of a worker, and what is due goes on over the other ways."""

from typing import Any

import pytest

from approvals import broker, nudges, outgoing


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What workers were told."""
    told: list[Any] = []
    monkeypatch.setattr(broker, "tell", lambda task, **more: told.append(task))
    return told


def test_one_thread_of_a_process_sends_over_one_way_and_few_over_any(told: list[Any]) -> None:
    with outgoing.turn("mail") as mail, outgoing.turn("mail") as mail_again:
        assert (mail, mail_again) == (True, False)
        with outgoing.turn("desk") as desk, outgoing.turn("chat") as chat, outgoing.turn("pager") as pager:
            assert (desk, chat, pager) == (True, True, False)
    with outgoing.turn("pager") as pager:
        assert pager


def test_what_is_counted_apart_waits_for_no_other_and_takes_nobodys_turn(told: list[Any]) -> None:
    with outgoing.turn("accounts", apart=True), outgoing.turn("a"), outgoing.turn("b"), outgoing.turn("c") as third:
        assert third
    with outgoing.turn("accounts", apart=True), outgoing.turn("accounts", apart=True) as again:
        assert not again
    with outgoing.turn("a"), outgoing.turn("b"), outgoing.turn("c"), outgoing.turn("accounts", apart=True) as accounts:
        assert accounts


def test_when_a_turn_ends_a_worker_looks_for_whoever_was_turned_away(told: list[Any]) -> None:
    with outgoing.turn("mail"):
        with outgoing.turn("mail"):
            pass
        assert told == []
    assert told == [nudges.SEND_QUEUED]
    with outgoing.turn("mail"):
        pass
    assert told == [nudges.SEND_QUEUED]


def test_a_turn_that_failed_is_over_too(told: list[Any]) -> None:
    with pytest.raises(OSError), outgoing.turn("mail"):
        raise OSError
    with outgoing.turn("mail") as mine:
        assert mine


def test_what_fails_at_once_stops_no_other_and_what_was_waited_for_in_vain_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[int] = []
    assert outgoing.one_after_another([1, 2, 3], lambda number: tried.append(number) is not None)
    assert tried == [1, 2, 3]
    monkeypatch.setattr(outgoing, "WAITED_SECONDS", 0.0)
    assert not outgoing.one_after_another([4, 5], lambda number: tried.append(number) is not None)
    assert tried == [1, 2, 3, 4]


def test_a_pass_ends_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing, "PASS_SECONDS", 0.0)
    tried: list[int] = []
    assert outgoing.one_after_another([1, 2], lambda number: not tried.append(number))
    assert tried == [1]
