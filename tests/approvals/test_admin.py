"""Admin pages record what they change; records can be viewed and not changed."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone

from approvals import cards, configuration, decisions, ledger
from approvals.admin_pages import RecordedAdmin, masked_arguments
from approvals.ids import uuid7
from approvals.masking import MASK
from approvals.models import Approval, Channel, Decision, Event, Notification
from tests.admin_pages import address, configuration_events, errors_of, save, submit
from tests.races import Meanwhile

pytestmark = pytest.mark.django_db


@pytest.fixture
def staff(client: Client, ada: User) -> Client:
    client.force_login(ada)
    return client


@pytest.fixture
def approval(roles: dict[str, Group]) -> Approval:
    card = cards.Card(
        run_id=uuid7(),
        execution_id=uuid7(),
        agent="support",
        tool="pay_out",
        tool_version="1",
        effect_class="irreversible",
        arguments_text='{"account":"<b>7</b>","pin":"hunter2"}',
        title="Pay <script>alert(1)</script>",
        sentence=[],
        effects=[],
        reason="A rule asks.",
        secret_fields=["pin"],
        expires_seconds=3600,
        hold_seconds=0,
        allowed_decisions=("approve", "reject"),
    )
    channel = Channel.objects.create(name="desk", kind="memory")
    with ledger.transaction():
        [made] = decisions.request([card], timezone.now(), [channel])
    return made


def desk(**fields: Any) -> dict[str, Any]:
    return {"name": "desk", "active": "on", "kind": "email", "config": '{"to": ["desk@example.test"]}', **fields}


def test_where_nothing_was_approved_yet_the_record_says_so(staff: Client, approval: Approval) -> None:
    page = staff.get(address(Approval, "change", approval.pk)).content.decode()
    place = page.split("Arguments that were approved:")[1].split("</div>")[0]
    assert place.split(">")[-1].strip() == "-"


def test_a_channel_is_made_changed_and_deleted_with_one_event_each(staff: Client, ada: User) -> None:
    lead = Group.objects.create(name="leads")
    save(staff, address(Channel, "add"), **desk())
    channel = Channel.objects.get()
    save(staff, address(Channel, "change", channel.pk), groups=[lead.pk], active=None)
    staff.post(address(Channel, "delete", channel.pk), {"post": "yes"})
    made, changed, deleted = configuration_events()
    assert [made.type, changed.type, deleted.type] == [
        "configuration.created",
        "configuration.changed",
        "configuration.deleted",
    ]
    assert {event.actor for event in (made, changed, deleted)} == {f"user:{ada.pk}:ada (admin)"}
    assert changed.data["before"] == {"active": True, "groups": []}
    assert changed.data["after"] == {"active": False, "groups": ["leads"]}
    assert deleted.data["before"]["config"] == {"to": ["desk@example.test"]}
    assert ledger.verify()[1] is None


def test_saving_a_page_without_a_change_writes_no_event(staff: Client) -> None:
    save(staff, address(Channel, "add"), **desk())
    save(staff, address(Channel, "change", Channel.objects.get().pk))
    assert len(configuration_events()) == 1


def test_deleting_several_is_an_event_each(staff: Client) -> None:
    rows = [Channel.objects.create(name=name, kind="memory") for name in ("a", "b")]
    selected = {"action": "delete_selected", "_selected_action": [str(row.pk) for row in rows], "post": "yes"}
    staff.post(address(Channel, "changelist"), selected)
    assert not Channel.objects.exists()
    assert sorted(event.data["name"] for event in configuration_events()) == ["a", "b"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "pigeon"}, "pigeon is not one of the available choices"),
        ({"config": '{"to": ["nobody"]}'}, "to: &#x27;nobody&#x27; is not an address"),
        ({"config": '{"colour": 1, "deciders": true}'}, "colour: Extra inputs are not permitted"),
        ({"config": '{"to": ["a@b.example"], "to": []}'}, "appears twice in one object"),
        ({"config": '{"to": NaN}'}, "NaN is not JSON"),
        ({"config": "{"}, "malformed or truncated"),
        ({"config": "[]"}, "Input should be a valid"),
    ],
)
def test_a_channel_that_could_not_send_is_refused(staff: Client, fields: dict[str, str], message: str) -> None:
    assert message in errors_of(submit(staff, address(Channel, "add"), **desk(**fields)))
    assert not Channel.objects.exists()
    assert configuration_events() == []


PERSONAL = {"kind": "slack", "config": '{"credential": "SLACK"}', "personal": "on"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"personal": "on"}, "a channel of this kind cannot be for individual people"),
        (PERSONAL | {"config": '{"credential": "SLACK", "channel": "C0123456789"}'}, "has no channel of its own"),
        (PERSONAL | {"personal": ""}, "name the id of a channel"),
    ],
)
def test_a_channel_that_is_not_for_whom_it_says_is_refused(staff: Client, fields: dict[str, str], message: str) -> None:
    assert message in errors_of(submit(staff, address(Channel, "add"), **desk(**fields)))
    assert not Channel.objects.exists()


def test_one_channel_at_most_is_for_single_people(staff: Client) -> None:
    save(staff, address(Channel, "add"), **desk(**PERSONAL))
    again = desk(**PERSONAL, name="other")
    assert "Switch the other off first" in errors_of(submit(staff, address(Channel, "add"), **again))
    save(staff, address(Channel, "add"), **again | {"active": None})
    other = Channel.objects.get(name="other")
    selected = {"action": "switch_on", "_selected_action": [str(other.pk)]}
    page = staff.post(address(Channel, "changelist"), selected, follow=True).content.decode()
    assert "Nothing was changed. Only one channel can be for individual people." in page
    other.refresh_from_db()
    assert (other.personal, other.active) == (True, False)


def test_the_record_says_by_what_name_a_message_is_known(staff: Client, approval: Approval) -> None:
    Notification.objects.update(receipt="C0123456789:1700000000.000001", state="sent")
    page = staff.get(address(Notification, "change", Notification.objects.get().pk)).content.decode()
    assert "C0123456789:1700000000.000001" in page


def test_a_channel_that_told_people_cannot_be_deleted_with_its_record(staff: Client, approval: Approval) -> None:
    staff.post(address(Channel, "delete", Channel.objects.get().pk), {"post": "yes"})
    assert Notification.objects.count() == 1


def test_a_change_that_fails_leaves_no_event(staff: Client) -> None:
    Channel.objects.create(name="desk", kind="memory")
    assert "already exists" in errors_of(submit(staff, address(Channel, "add"), **desk()))
    assert configuration_events() == []


@pytest.mark.parametrize("model", [Approval, Decision, Notification, Event])
@pytest.mark.parametrize("superuser", [False, True])
def test_a_record_can_be_looked_at_and_not_changed(
    client: Client, ada: User, dana: User, approval: Approval, model: Any, superuser: bool
) -> None:
    with ledger.transaction():
        incoming = decisions.Incoming(uuid7(), "approve", dana, 1, approval.action_digest)
        assert isinstance(decisions.decide(approval.pk, incoming, timedelta(hours=1)), decisions.Taken)
    ada.is_superuser = superuser
    ada.save()
    client.force_login(ada)
    row = model.objects.first()
    before = list(model.objects.values())
    assert client.get(address(model, "changelist")).status_code == 200
    page = client.get(address(model, "change", row.pk))
    assert page.status_code == 200
    assert b'name="_save"' not in page.content
    for url in (
        address(model, "add"),
        address(model, "change", row.pk),
        address(model, "delete", row.pk),
        address(model, "changelist"),
    ):
        selected = {"action": "delete_selected", "_selected_action": [str(row.pk)], "post": "yes"}
        assert client.post(url, selected).status_code == 403, url
    assert list(model.objects.values()) == before


def test_a_record_page_shows_no_secret_and_no_markup_from_outside(staff: Client, approval: Approval) -> None:
    text = staff.get(address(Approval, "change", approval.pk)).content.decode()
    assert "hunter2" not in text
    assert MASK in text
    assert "<script>alert" not in text
    assert "<b>7</b>" not in text
    assert "&lt;b&gt;7&lt;/b&gt;" in text


@pytest.mark.parametrize(
    ("text", "secret", "shown"),
    [
        ('{"a":1,"pin":"x"}', ["pin"], f'{{"a":1,"pin":"{MASK}"}}'),
        ('{"a":1}', [], '{"a":1}'),
        ("", ["pin"], "-"),
        ('{"pin": "x', ["pin"], MASK),
        ('["x"]', ["pin"], MASK),
    ],
)
def test_arguments_are_shown_without_their_secrets(text: str, secret: list[str], shown: str) -> None:
    assert masked_arguments(text, secret) == shown


def test_a_person_without_the_right_sees_no_record(client: Client, sam: User, approval: Approval) -> None:
    sam.is_staff = True
    sam.save()
    client.force_login(sam)
    assert client.get(address(Approval, "change", approval.pk)).status_code == 403
    assert client.get(address(Event, "changelist")).status_code == 403


def test_every_page_that_changes_something_records_it() -> None:
    own = {"ApiToken"}  # its actions write their own events
    for model, page in admin.site._registry.items():
        if model._meta.app_label in ("agentapp", "approvals", "auth") and model.__name__ not in own:
            changes = page.has_change_permission.__qualname__ != "ReadOnlyAdmin.has_change_permission"
            assert isinstance(page, RecordedAdmin) == changes, model


@pytest.mark.postgresql  # SQLite lets one writer in at a time
@pytest.mark.django_db(transaction=True)
def test_what_somebody_sets_while_rows_are_switched_stays(staff: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = Channel.objects.create(name="desk", kind="email", config={"to": ["desk@shop.example"]})
    meanwhile = Meanwhile(lambda: Channel.objects.update(personal=True), configuration.save)
    monkeypatch.setattr(configuration, "save", meanwhile)
    chosen = {"action": "switch_off", ACTION_CHECKBOX_NAME: [str(channel.pk)]}
    assert staff.post(address(Channel, "changelist"), chosen).status_code == 302
    meanwhile.done()
    channel.refresh_from_db()
    assert (channel.active, channel.personal) == (False, True)
