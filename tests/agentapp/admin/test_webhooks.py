"""Endpoints are set up, tested and read about; viewing a page sends nothing."""

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from agentapp import health, webhooks
from agentapp.models import WebhookDelivery, WebhookEndpoint, WebhookProgress
from approvals.models import Event
from tests.admin_pages import address, errors_of, save, submit
from tests.agentapp.webhooks.conftest import SECRET
from tests.agentapp.webhooks.test_collecting import happens

pytestmark = pytest.mark.django_db


@pytest.fixture
def staff(client: Client, ada):
    client.force_login(ada)
    return client


def test_an_endpoint_is_made_on_record(staff):
    given = {"name": "desk", "url": "https://desk.example/in", "credential": "DESK", "events": ["approval.requested"]}
    save(staff, address(WebhookEndpoint, "add"), **given)
    made = WebhookEndpoint.objects.get()
    assert (made.events, made.active) == (["approval.requested"], True)
    assert Event.objects.get(type="configuration.created").data["after"]["credential"] == "DESK"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"url": "gopher://desk.example"}, "Enter a valid URL"),
        ({"credential": "whsec_abc"}, "capital letters"),
        ({"credential": ""}, "required"),
        ({"events": None}, "required"),
        ({"previous_credential": "DESK"}, "must differ from the current one"),
    ],
)
def test_what_cannot_work_is_not_taken(staff, wrong, message):
    given = {"name": "desk", "url": "https://desk.example/in", "credential": "DESK", "events": ["run.failed"]}
    assert message in errors_of(submit(staff, address(WebhookEndpoint, "add"), **given | wrong))
    assert not WebhookEndpoint.objects.exists()


def test_a_test_is_sent_when_somebody_says_so_and_its_answer_is_told(staff, endpoint, receiver):
    url = reverse("admin:webhook_test", args=[endpoint.pk])
    assert "Send a test to desk?" in staff.get(url).content.decode()
    staff.head(url)
    assert receiver.received == []
    page = staff.post(url, follow=True).content.decode()
    assert "The test was accepted: desk answered 204." in page
    [got] = receiver.received
    assert b'"type":"webhook.test"' in got.body
    assert Event.objects.get(type="webhook.tested").data == {"endpoint": "desk"}
    receiver.answers = [(500, {}, f"no <b>, {SECRET}".encode())]
    page = staff.post(url, follow=True).content.decode()
    assert "The test was not accepted by desk. The server answered 500: no &lt;b&gt;, [redacted]" in page
    # A test that failed is not sent again.
    assert webhooks.due_endpoints() == []


def test_an_endpoint_that_is_off_can_be_tried(staff, endpoint, receiver):
    WebhookEndpoint.objects.update(active=False)
    staff.post(reverse("admin:webhook_test", args=[endpoint.pk]))
    assert len(receiver.received) == 1


def test_deliveries_are_read_and_repeated_and_changed_by_nobody(staff, endpoint, receiver):
    happens()
    webhooks.collect()
    webhooks.send_due(endpoint.pk)
    delivery = WebhookDelivery.objects.get()
    assert "breaker.opened" in staff.get(address(WebhookDelivery, "changelist")).content.decode()
    url = address(WebhookDelivery, "change", delivery.pk)
    page = staff.get(url).content.decode()
    again = reverse("admin:webhook_redeliver", args=[delivery.pk])
    assert again in page
    assert str(delivery.event_id) in page
    assert staff.post(url, {"state": "failed"}).status_code == 403
    assert "Redeliver" in staff.get(again).content.decode()
    assert webhooks.due_endpoints() == []
    assert staff.post(again).status_code == 302
    assert webhooks.due_endpoints() == [endpoint.pk]
    assert again not in staff.get(url).content.decode()


def test_who_may_only_look_sends_nothing(client, endpoint, receiver, sam):
    sam.is_staff = True
    sam.save()
    looking = Permission.objects.filter(codename__in=["view_webhookendpoint", "view_webhookdelivery"])
    sam.user_permissions.set(looking)
    client.force_login(sam)
    assert client.get(address(WebhookEndpoint, "change", endpoint.pk)).status_code == 200
    assert client.get(reverse("admin:webhook_test", args=[endpoint.pk])).status_code == 403
    assert client.post(reverse("admin:webhook_test", args=[endpoint.pk])).status_code == 403
    happens()
    webhooks.collect()
    delivery = WebhookDelivery.objects.get()
    assert client.post(reverse("admin:webhook_redeliver", args=[delivery.pk])).status_code == 403
    assert receiver.received == []


def test_an_endpoint_says_how_it_fares(staff, endpoint, receiver):
    page = address(WebhookEndpoint, "changelist")
    assert "not been told anything" in staff.get(page).content.decode()
    receiver.answers = [(500, {}, b""), (410, {}, b"")]
    happens()
    webhooks.collect()
    webhooks.send_due(endpoint.pk)
    assert "Has taken nothing since" in staff.get(page).content.decode()
    happens()
    webhooks.collect()
    webhooks.send_due(endpoint.pk)
    assert "Switched off. Its server answered 410" in staff.get(page).content.decode()


@pytest.mark.parametrize("by", ["its page", "the list"])
def test_an_endpoint_that_a_person_leaves_off_is_no_problem_any_more(staff, endpoint, by):
    WebhookEndpoint.objects.filter(pk=endpoint.pk).update(active=False)
    WebhookProgress.objects.update_or_create(
        endpoint=endpoint, defaults={"read_until": timezone.now(), "problem": "Its server answered 410."}
    )

    def failing():
        return "webhooks_failing" in [problem.code for problem in health.look()]

    assert failing()
    if by == "its page":
        save(staff, address(WebhookEndpoint, "change", endpoint.pk))
    else:
        chosen = {"action": "switch_off", "_selected_action": [str(endpoint.pk)]}
        staff.post(address(WebhookEndpoint, "changelist"), chosen)
    assert not failing()
