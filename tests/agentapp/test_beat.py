"""When beat has what done."""

from celery import current_app

from agentapp.beat import NotedScheduler


def test_what_is_done_each_hour_is_first_done_a_minute_after_the_start() -> None:
    first = {name: entry.is_due().next for name, entry in NotedScheduler(app=current_app).schedule.items()}
    hourly = {name: first[name] for name in ("retention", "old sessions", "old webhooks")}
    assert hourly == {name: seconds for name, seconds in hourly.items() if 0 < seconds <= 60}
    assert 0 < first["webhooks"] <= 5
