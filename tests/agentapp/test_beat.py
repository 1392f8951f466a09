"""When beat starts what it has to start."""

from datetime import timedelta

from celery import current_app

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
