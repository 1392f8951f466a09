"""Every event that an endpoint wants becomes one delivery, in whatever order transactions commit."""

import threading
from datetime import timedelta

import pytest
from django.db import connection, transaction

from agentapp import webhooks
from agentapp.models import WebhookDelivery, WebhookEndpoint, WebhookProgress
from agentapp.webhooks import collecting
from approvals import decisions, ledger
from approvals.ids import uuid7
from approvals.models import Event
from tests.races import race
from tests.rows import a_moment_ago, a_request, take, within_transaction

pytestmark = pytest.mark.django_db


def happens(type: str = "breaker.opened", chain: str = ledger.CONFIGURATION) -> None:
    with ledger.transaction():
        ledger.record(chain, type, {"scope": "tool", "name": "refund_order", "last_error": "what a server said"})


def told() -> list[str]:
    return list(WebhookDelivery.objects.order_by("created_at").values_list("type", flat=True))


def test_without_an_endpoint_it_is_one_query(django_assert_num_queries):
    happens()
    with django_assert_num_queries(1):
        assert webhooks.collect() == 0


def test_an_endpoint_is_told_once_of_what_it_wants_and_of_nothing_before_it_was_there(endpoint):
    WebhookEndpoint.objects.update(events=["breaker.opened"])
    with ledger.transaction():
        ledger.record(ledger.CONFIGURATION, "signin.succeeded")
    happens("breaker.closed")
    happens()
    assert webhooks.collect() == 1
    assert webhooks.collect() == 0
    assert told() == ["breaker.opened"]
    WebhookEndpoint.objects.create(name="late", url="https://late.example", events=["breaker.opened"], credential="L")
    assert webhooks.collect() == 0


def test_two_endpoints_are_told_of_the_same_event_under_the_same_id(endpoint):
    WebhookEndpoint.objects.create(
        name="other", url="https://other.example", events=["breaker.opened"], credential="OTHER",
        created_at=endpoint.created_at,
    )  # fmt: skip
    happens()
    webhooks.collect()
    assert [row.event_id for row in WebhookDelivery.objects.all()] == [Event.objects.get().pk] * 2


def test_more_events_than_are_read_at_once_are_all_told(endpoint, monkeypatch):
    monkeypatch.setattr(collecting, "BATCH", 3)
    for _ in range(8):
        happens()
    assert webhooks.collect() == 8
    assert WebhookDelivery.objects.count() == 8


def test_nothing_is_kept_for_an_endpoint_that_is_off(endpoint, monkeypatch):
    monkeypatch.setattr(collecting, "CLOCKS_DIFFER", timedelta(0))
    WebhookEndpoint.objects.update(active=False)
    happens()
    webhooks.collect()
    WebhookEndpoint.objects.update(active=True)
    happens("breaker.closed")
    webhooks.collect()
    assert told() == ["breaker.closed"]


def test_a_message_holds_names_and_a_link_and_no_argument_and_no_word_of_anybody(endpoint, dana):
    request = a_request(arguments={"order": "1001", "amount": 918273645, "note": "for Ana Keller"}, risk="high")
    take(request, dana, "reject", message="Ana is a liar")
    happens()
    webhooks.collect()
    asked, decided, stopped = WebhookDelivery.objects.order_by("created_at")
    for delivery in (asked, decided, stopped):
        assert not any(word in delivery.body for word in ("Ana", "918273645", "Refund order", "what a server said"))
    assert f'"link":"http://127.0.0.1:8000/approvals/{request.pk}/"' in asked.body
    assert '"risk":"high"' in asked.body
    assert '"tool":"refund_order"' in asked.body
    assert '"state":"pending"' in asked.body
    assert '"state":"rejected"' in decided.body
    assert Event.objects.get(type="approval.requested").hash in asked.body


def test_two_workers_that_collect_together_make_one_delivery(transactional_db, endpoint):
    happens()
    assert not [found for found in race(webhooks.collect, webhooks.collect) if isinstance(found, Exception)]
    assert WebhookDelivery.objects.count() == 1


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_an_event_that_commits_late_is_told_though_later_ones_were_first(endpoint, monkeypatch):
    """Two chains: one chain's event has the earlier time and commits last."""
    # Clocks agree here, so only the database's view of open transactions is left to hold the place.
    monkeypatch.setattr(collecting, "CLOCKS_DIFFER", timedelta(0))
    written, commit = threading.Event(), threading.Event()

    def late() -> None:
        try:
            with transaction.atomic():
                happens("run.failed", ledger.run_chain(uuid7()))
                written.set()
                assert commit.wait(30)
        finally:
            connection.close()

    writer = threading.Thread(target=late)
    writer.start()
    try:
        assert written.wait(30)
        happens("run.succeeded", ledger.run_chain(uuid7()))
        webhooks.collect()
        webhooks.collect()
        assert told() == ["run.succeeded"]
    finally:
        commit.set()
        writer.join()
    webhooks.collect()
    assert sorted(told()) == ["run.failed", "run.succeeded"]
    webhooks.collect()
    first = Event.objects.order_by("at").first()
    assert first is not None
    assert WebhookProgress.objects.get().read_until > first.at


def test_a_request_that_misses_its_target_still_waits(endpoint):
    approval = a_moment_ago(a_request(target_seconds=60), "target_at")
    within_transaction(decisions.breach, approval.pk)
    webhooks.collect()
    [missed] = WebhookDelivery.objects.filter(type="approval.breached")
    assert '"state":"pending"' in missed.body
    assert f'"approval":"{approval.pk}"' in missed.body
