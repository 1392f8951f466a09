"""When beat starts what it has to start."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import current_app
from celery.beat import ScheduleEntry, SchedulingError

from agentapp import beat
from agentapp.beat import NotedScheduler


def test_what_is_done_each_hour_is_first_done_a_minute_after_the_start() -> None:
    first = {name: entry.is_due().next for name, entry in NotedScheduler(app=current_app).schedule.items()}
    hourly = {name: first[name] for name in ("retention", "old sessions", "old webhooks")}
    assert hourly == {name: seconds for name, seconds in hourly.items() if 0 < seconds <= 60}
    assert 0 < first["webhooks"] <= 5


def test_a_clock_that_was_put_back_lets_nothing_wait_until_it_is_as_late_again() -> None:
    scheduler = NotedScheduler(app=current_app)
    scheduler.apply_async = lambda *args, **more: None  # type: ignore[method-assign]
    for entry in scheduler.schedule.values():
        entry.last_run_at = entry.default_now() + timedelta(hours=1)
    scheduler.tick()
    sweep = scheduler.schedule["sweep"]
    assert sweep.is_due().next <= sweep.schedule.run_every.total_seconds()


@pytest.fixture
def scheduler(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> NotedScheduler:
    """One that notes its rounds, and does not really wait."""
    settings.BEAT_FILE = tmp_path / "beat"
    monkeypatch.setattr(beat.time, "sleep", lambda seconds: None)
    return NotedScheduler(app=current_app)


def failing(scheduler: NotedScheduler, errors: list[Exception]) -> list[str]:
    """What is tried to be sent, while the broker fails like this, one after the other, and then takes it."""
    tried: list[str] = []

    def apply_async(entry: ScheduleEntry, **more: Any) -> None:
        tried.append(entry.name)
        if errors:
            try:
                raise errors.pop(0)
            except Exception:
                raise SchedulingError("Couldn't apply it")  # noqa: B904 - as Celery does

    scheduler.apply_async = apply_async  # type: ignore[method-assign]
    return tried


def test_what_the_broker_does_not_take_is_sent_as_soon_as_it_does(
    scheduler: NotedScheduler, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    tried = failing(scheduler, [ConnectionRefusedError(), redis.ConnectionError(), redis.ResponseError("OOM")])
    scheduler.apply_entry(scheduler.schedule["sweep"])
    assert tried == ["sweep"] * 4
    assert settings.BEAT_FILE.exists()
    assert [record.getMessage() for record in caplog.records] == [
        "The broker does not take sweep; trying again until it does (Couldn't apply it)"
    ]


def test_what_cannot_be_sent_by_any_broker_keeps_nothing_else_waiting(scheduler: NotedScheduler) -> None:
    tried = failing(scheduler, [TypeError("not JSON")])
    scheduler.apply_entry(scheduler.schedule["sweep"])
    scheduler.apply_entry(scheduler.schedule["figures"])
    assert tried == ["sweep", "figures"]
