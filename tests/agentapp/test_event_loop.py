"""Waiting for something that is done in the loop of all connections."""

import asyncio
import threading

import pytest

from agentapp.event_loop import EventLoop


@pytest.fixture
def ends_while_nobody_looks(monkeypatch):
    """What is submitted ends when a wait for it is over, before the one who waits looks whether it has ended."""
    time_is_up, submit = threading.Event(), asyncio.run_coroutine_threadsafe

    def submitted(work, loop):
        future, ended = submit(work, loop), threading.Event()
        future.add_done_callback(lambda _: ended.set())
        result = future.result

        def waited(timeout=None):
            try:
                return result(timeout)
            except TimeoutError:
                time_is_up.set()
                assert ended.wait(20)
                raise

        future.result = waited
        return future

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", submitted)

    async def work(_):
        await asyncio.to_thread(time_is_up.wait, 20)
        return "paid"

    return work


def test_an_answer_that_comes_between_two_looks_counts(ends_while_nobody_looks):
    assert EventLoop().submit(ends_while_nobody_looks, 20, lambda: None, every=0.01) == "paid"


def test_what_times_out_itself_says_so():
    async def work(_):
        raise TimeoutError("the bank did not answer")

    with pytest.raises(TimeoutError, match="the bank did not answer"):
        EventLoop().submit(work, 20, lambda: None)
