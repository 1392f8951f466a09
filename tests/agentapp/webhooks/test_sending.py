"""A message arrives at least once and signed, or its row says why not; and it reaches nothing internal."""

import base64
import hmac
import json
import os
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from celery import current_app
from django.db import connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agentapp import actions, tasks, webhooks
from agentapp.models import KillSwitch, WebhookDelivery, WebhookEndpoint, WebhookProgress
from agentapp.webhooks import sending
from approvals import outgoing
from approvals.models import Event
from tests.agentapp.webhooks.conftest import OTHER_SECRET, SECRET
from tests.agentapp.webhooks.test_collecting import happens
from tests.test_docs import snippets

pytestmark = pytest.mark.django_db

PAGE = Path(__file__).parents[3] / "docs/webhooks.md"


@pytest.fixture
def is_genuine() -> Any:
    """What receivers are told to write."""
    module: dict[str, Any] = {}
    [source] = snippets(PAGE, "python")
    exec(source, module)
    return module["is_genuine"]


def send() -> int:
    """What a beat and its workers do."""
    webhooks.collect()
    webhooks.give_up()
    return sum(webhooks.send_due(pk) for pk in webhooks.due_endpoints())


def age(**by: float) -> None:
    """Let time pass for waiting messages."""
    WebhookDelivery.objects.filter(next_at__isnull=False).update(next_at=F("next_at") - timedelta(**by))


def test_a_message_arrives_signed_as_the_page_for_receivers_says(endpoint, receiver, is_genuine):
    happens()
    assert send() == 1
    [got] = receiver.received
    event, delivery = Event.objects.get(type="breaker.opened"), WebhookDelivery.objects.get()
    assert is_genuine(SECRET, got.headers, got.body)
    assert not is_genuine(OTHER_SECRET, got.headers, got.body)
    assert not is_genuine(SECRET, got.headers, got.body + b" ")
    old = got.headers | {"webhook-timestamp": str(int(time.time()) - 301)}
    assert not is_genuine(SECRET, old, got.body)
    # Even signing it again cannot make an old message young.
    assert not is_genuine(SECRET, old | signed_again(old, got.body), got.body)
    said = json.loads(got.body)
    assert (got.headers["webhook-id"], said["type"]) == (str(event.pk), "breaker.opened")
    assert said["data"]["name"] == "refund_order"
    assert got.headers["content-type"] == "application/json"
    assert (delivery.state, delivery.attempts, delivery.status, delivery.error) == ("sent", 1, 204, "")
    assert send() == 0
    assert len(receiver.received) == 1


def signed_again(headers: dict[str, str], body: bytes) -> dict[str, str]:
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    mark = hmac.digest(base64.b64decode(SECRET.removeprefix("whsec_")), signed, "sha256")
    return {"webhook-signature": f"v1,{base64.b64encode(mark).decode()}"}


def test_of_a_kill_switch_it_says_what_is_stopped_and_not_why(endpoint, receiver, clerk, mia):
    actions.engage_switch("tool", "pay", "Ana is paid twice.", mia)
    actions.release_switch(KillSwitch.objects.get().pk, mia, "Ana is told.")
    assert send() == 2
    said = [json.loads(got.body) for got in receiver.received]
    assert {one["type"] for one in said} == {"switch.engaged", "switch.released"}
    assert {(one["data"]["scope"], one["data"]["name"]) for one in said} == {("tool", "pay")}
    assert not any(b"Ana" in got.body for got in receiver.received)


def test_the_beat_has_it_sent(endpoint, receiver, settings):
    named = {entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()}
    assert {tasks.send_webhooks.name, tasks.forget_webhooks.name} <= named
    happens()
    current_app.conf.task_always_eager = True
    try:
        tasks.send_webhooks.delay()
    finally:
        current_app.conf.task_always_eager = False
    assert len(receiver.received) == 1
    assert WebhookDelivery.objects.get().state == "sent"


def test_while_a_secret_is_replaced_both_can_check(endpoint, receiver, is_genuine):
    WebhookEndpoint.objects.update(credential="DESK_NEW", previous_credential="DESK")
    happens()
    send()
    [got] = receiver.received
    assert is_genuine(SECRET, got.headers, got.body)
    assert is_genuine(OTHER_SECRET, got.headers, got.body)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "CREDENTIAL_DESK is not set"),
        ("secret of our shop", "not a webhook secret"),
        ("whsec_c2hvcnQ=", "not a webhook secret"),
        ("whsec_!!!", "not a webhook secret"),
    ],
)
def test_without_a_good_secret_nothing_is_sent_and_the_row_says_why(endpoint, receiver, monkeypatch, value, why):
    monkeypatch.delenv("CREDENTIAL_DESK")
    if value is not None:
        monkeypatch.setenv("CREDENTIAL_DESK", value)
    happens()
    assert send() == 0
    delivery = WebhookDelivery.objects.get()
    assert (delivery.state, delivery.attempts) == ("queued", 1)
    assert why in delivery.error
    assert value is None or value not in delivery.error
    assert receiver.received == []


def test_what_is_not_taken_is_sent_again_later_to_the_letter_and_with_the_same_id(endpoint, receiver):
    receiver.answers = [(500, {}, b"down"), (503, {}, b"")]
    happens()
    assert send() == 0
    delivery = WebhookDelivery.objects.get()
    assert (delivery.state, delivery.attempts, delivery.status) == ("queued", 1, 500)
    assert delivery.error == "The server answered 500: down"
    assert send() == 0
    assert len(receiver.received) == 1
    age(seconds=5)
    assert send() == 0
    age(seconds=299)
    assert send() == 0
    assert len(receiver.received) == 2
    age(seconds=1)
    assert send() == 1
    assert len({(got.headers["webhook-id"], got.body) for got in receiver.received}) == 1
    assert WebhookProgress.objects.get().failing_since is None


def test_after_the_last_attempt_it_has_failed(endpoint, receiver):
    receiver.answers = [(500, {}, b"")] * 20
    happens()
    for _ in range(sending.ATTEMPTS):
        send()
        age(days=1)
    assert len(receiver.received) == sending.ATTEMPTS
    assert send() == 0
    assert WebhookDelivery.objects.get().state == "failed"
    assert len(receiver.received) == sending.ATTEMPTS


def test_one_whose_worker_died_is_sent_again_and_one_whose_last_did_is_ended(endpoint, receiver, monkeypatch):
    class Killed(BaseException):
        pass

    def dies(*_: Any) -> None:
        raise Killed

    happens()
    with monkeypatch.context() as patched:
        patched.setattr(sending, "_post", dies)
        with pytest.raises(Killed):
            send()
    assert WebhookDelivery.objects.get().attempts == 1
    age(seconds=5)
    assert send() == 1
    WebhookDelivery.objects.update(state="queued", attempts=sending.ATTEMPTS)
    age(minutes=5)
    assert send() == 0
    assert "the worker died" in WebhookDelivery.objects.get(state="failed").error


def test_a_redirect_is_not_followed(endpoint, receiver):
    receiver.answers = [(307, {"Location": f"{receiver.url}/elsewhere"}, b"")]
    happens()
    assert send() == 0
    assert [got.path for got in receiver.received] == ["/hook"]
    assert WebhookDelivery.objects.get().status == 307


def test_an_inner_address_is_not_reached_unless_it_is_named(endpoint, receiver, settings):
    settings.OUTBOUND_NETWORKS = []
    happens()
    assert send() == 0
    assert receiver.received == []
    assert "not a public address" in WebhookDelivery.objects.get().error


def test_an_answer_without_end_is_left_and_of_a_long_one_a_beginning_is_kept_without_the_secret(
    endpoint, receiver, monkeypatch
):
    bare = SECRET.removeprefix("whsec_")
    receiver.answers = [(400, {}, f"{SECRET} {bare} ".encode() + b"x" * 3_000_000)]
    happens()
    assert send() == 0
    error = WebhookDelivery.objects.get().error
    assert len(error) == 500
    assert bare not in error
    assert error.startswith("The server answered 400: [redacted] [redacted] xxx")


def test_a_server_that_does_not_answer_is_waited_for_so_long(endpoint, receiver, monkeypatch):
    monkeypatch.setattr(sending, "ANSWERS_WITHIN_SECONDS", 0.2)
    receiver.gate = threading.Event()
    happens()
    try:
        assert send() == 0
    finally:
        receiver.gate.set()
    delivery = WebhookDelivery.objects.get()
    assert (delivery.state, delivery.status) == ("queued", None)
    assert delivery.error


def test_a_server_that_hangs_is_waited_for_once_in_a_pass(endpoint, receiver, monkeypatch):
    monkeypatch.setattr(sending, "ANSWERS_WITHIN_SECONDS", 0.2)
    monkeypatch.setattr(outgoing, "WAITED_SECONDS", 0.1)
    receiver.gate = threading.Event()
    for _ in range(3):
        happens()
    try:
        assert send() == 0
    finally:
        receiver.gate.set()
    assert sorted(WebhookDelivery.objects.values_list("attempts", flat=True)) == [0, 0, 1]


def test_few_threads_send_to_endpoints_at_a_time(endpoint, receiver, monkeypatch):
    monkeypatch.setattr(outgoing, "AT_ONCE", 1)
    happens()
    with outgoing.turn("mail"):
        assert send() == 0
    assert send() == 1


def test_a_server_that_is_gone_is_switched_off_on_record(endpoint, receiver):
    receiver.answers = [(410, {}, b"")]
    happens()
    happens("breaker.closed")
    send()
    endpoint.refresh_from_db()
    assert not endpoint.active
    assert len(receiver.received) == 1
    assert "410" in WebhookProgress.objects.get().problem
    assert Event.objects.get(type="webhook.switched_off").data["endpoint"] == "desk"
    assert Event.objects.get(type="configuration.changed").data["after"] == {"active": False}
    assert sorted(WebhookDelivery.objects.values_list("state", flat=True)) == ["failed", "queued"]
    WebhookEndpoint.objects.update(active=True)
    assert send() == 1


def test_an_endpoint_that_takes_nothing_for_five_days_is_switched_off(endpoint, receiver):
    receiver.answers = [(500, {}, b"")] * 3
    happens()
    send()
    assert WebhookProgress.objects.get().failing_since is not None
    WebhookProgress.objects.update(failing_since=F("failing_since") - timedelta(days=4, hours=23))
    age(hours=1)
    send()
    endpoint.refresh_from_db()
    assert endpoint.active
    WebhookProgress.objects.update(failing_since=F("failing_since") - timedelta(hours=1))
    age(hours=1)
    send()
    endpoint.refresh_from_db()
    assert not endpoint.active
    assert "5 days" in WebhookProgress.objects.get().problem


@pytest.fixture
def failing(endpoint, receiver):
    """It failed once, six days ago; until then nothing was sent again."""
    receiver.answers = [(500, {}, b""), (502, {}, b"")]
    happens()
    send()
    WebhookDelivery.objects.update(state="failed")
    long_ago = timezone.now() - timedelta(days=6)
    WebhookProgress.objects.update(failing_since=long_ago, failed_at=timezone.now() - timedelta(hours=1))
    return endpoint


def is_on_after_a_glitch(endpoint):
    happens()
    assert send() == 0
    endpoint.refresh_from_db()
    return endpoint.active


def test_what_fails_all_the_time_is_switched_off(failing):
    assert not is_on_after_a_glitch(failing)


def test_time_in_which_nothing_was_sent_is_no_failure(failing):
    WebhookProgress.objects.update(failed_at=F("failed_at") - timedelta(days=2))
    assert is_on_after_a_glitch(failing)
    assert WebhookProgress.objects.get().failing_since > timezone.now() - timedelta(minutes=1)


def test_a_test_that_arrives_says_that_it_fares_well(failing, receiver, ada):
    receiver.answers = [(204, {}, b""), (502, {}, b"")]
    assert webhooks.test(failing, ada).state == "sent"
    assert is_on_after_a_glitch(failing)


def test_saving_it_lets_no_failure_of_before_count_on(failing):
    webhooks.see_to(failing.pk)
    assert is_on_after_a_glitch(failing)


def test_why_it_was_switched_off_stays_until_somebody_saves_it_whatever_a_test_says(endpoint, receiver, ada):
    receiver.answers = [(410, {}, b"")]
    happens()
    send()
    assert webhooks.test(endpoint, ada).state == "sent"
    assert "410" in WebhookProgress.objects.get().problem


def test_one_worker_at_a_time_sends_to_an_endpoint(endpoint, receiver):
    happens()
    webhooks.collect()
    assert webhooks.due_endpoints() == [endpoint.pk]
    WebhookProgress.objects.update(sending_until=timezone.now() + timedelta(seconds=40))
    assert webhooks.due_endpoints() == []
    assert webhooks.send_due(endpoint.pk) == 0
    assert receiver.received == []
    WebhookProgress.objects.update(sending_until=F("sending_until") - timedelta(seconds=41))
    assert webhooks.send_due(endpoint.pk) == 1
    assert WebhookProgress.objects.get().sending_until is None


def test_redelivering_sends_it_again_under_the_same_id_on_record(endpoint, receiver, ada):
    happens()
    send()
    delivery = WebhookDelivery.objects.get()
    assert webhooks.redeliver(delivery.pk, ada)
    assert not webhooks.redeliver(delivery.pk, ada)
    assert send() == 1
    assert [got.headers["webhook-id"] for got in receiver.received] == [str(delivery.event_id)] * 2
    assert Event.objects.get(type="webhook.redelivered").actor == f"user:{ada.pk}:ada"


def test_no_secret_stands_in_any_row(endpoint, receiver, ada):
    with CaptureQueriesContext(connection) as queries:
        happens()
        send()
        webhooks.test(endpoint, ada)
    assert os.environ["CREDENTIAL_DESK"] == SECRET
    assert not any(SECRET.removeprefix("whsec_") in query["sql"] for query in queries)


def test_what_ended_long_ago_is_deleted_and_what_waits_is_not(endpoint):
    happens()
    happens("breaker.closed")
    webhooks.collect()
    WebhookDelivery.objects.filter(type="breaker.opened").update(state="failed")
    assert webhooks.forget_old() == 0
    WebhookDelivery.objects.update(created_at=F("created_at") - timedelta(days=31))
    assert webhooks.forget_old() == 1
    assert WebhookDelivery.objects.get().type == "breaker.closed"
