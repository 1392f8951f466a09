"""Where people take a run over, and see that somebody has done so."""

import re

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from agentapp.models import Run
from approvals import ledger
from tests.agentapp.run_builder import RunBuilder, make_tool, proposal

pytestmark = pytest.mark.django_db


def test_who_is_asked_takes_a_run_over_from_its_page_and_from_the_request(
    client: Client, sam: User, dana: User
) -> None:
    run = RunBuilder(sam)
    (approval,) = run.ask(*run.step("", proposal(make_tool("refund_payment", "irreversible"))))
    client.force_login(dana)
    button = f'action="/runs/{run.id}/take-over/"'
    assert button in client.get(f"/runs/{run.id}/").content.decode()
    assert button in client.get(f"/approvals/{approval.pk}/").content.decode()

    client.post(f"/runs/{run.id}/take-over/")

    page = client.get(f"/runs/{run.id}/").content.decode()
    assert "You have taken over." in page
    assert f'action="/runs/{run.id}/hand-back/"' in page
    assert f'href="/runs/{run.id}/chat/"' in page
    assert button not in page
    assert f'action="/runs/{run.id}/resume/"' not in page
    request = client.get(f"/approvals/{approval.pk}/").content.decode()
    assert "You have taken this run over." in request
    assert button not in request


def test_who_decides_about_a_call_but_may_not_see_its_run_is_not_offered_to_take_it_over(
    client: Client, sam: User, otto: User
) -> None:
    otto.user_permissions.add(Permission.objects.get(codename="decide_approval"))
    run = RunBuilder(sam)
    (approval,) = run.ask(*run.step("", proposal(make_tool("refund_payment", "irreversible"))))
    client.force_login(otto)
    for address in ("/approvals/{}/", "/inbox/peek/{}/", "/inbox/?id={}"):
        page = client.get(address.format(approval.pk)).content.decode()
        assert f'action="/approvals/{approval.pk}/decide/"' in page
        assert "take-over" not in page
    assert client.post(f"/runs/{run.id}/take-over/").status_code == 404


def test_the_audit_trail_names_the_run_that_was_taken_over_also_where_its_conversation_was(
    client: Client, sam: User, dana: User, mia: User
) -> None:
    run = RunBuilder(sam)
    run.ask(*run.step("", proposal(make_tool("refund_payment", "irreversible"))))
    client.force_login(dana)
    client.post(f"/runs/{run.id}/take-over/")

    client.force_login(mia)
    page = client.get("/audit/?q=did:took-over").content.decode()

    lines = re.findall(r'<a class="rowlink"[^>]*>([^<]+)</a>', page)
    assert lines == [Run.objects.get(pk=run.id).title] * 2


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("run", [7, "nothing", None])
def test_the_audit_trail_shows_an_event_whose_run_somebody_has_changed_by_hand(
    client: Client, mia: User, run: object
) -> None:
    with ledger.transaction():
        ledger.record(ledger.CONFIGURATION, "conversation.taken_over", {"run": run})
    client.force_login(mia)
    assert client.get("/audit/?q=did:took-over").status_code == 200


def test_who_only_reads_is_offered_the_conversation_and_no_more(client: Client, sam: User) -> None:
    reader = User.objects.create_user("reader")
    reader.user_permissions.add(Permission.objects.get(codename="view_run"))
    run = RunBuilder(sam)
    run.ask(*run.step("", proposal(make_tool("refund_payment", "irreversible"))))
    client.force_login(reader)

    page = client.get(f"/runs/{run.id}/").content.decode()

    assert f'href="/runs/{run.id}/chat/"' in page
    assert f'action="/runs/{run.id}/take-over/"' not in page
