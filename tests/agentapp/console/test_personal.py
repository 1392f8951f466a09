"""Personal data on the pages of a run is masked until a person with the right asks to see it, which is recorded."""

import html
import time

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client

from agentapp.audit import vocabulary
from agentapp.discretion import SHOWN_SECONDS
from agentapp.models import Run, Tool
from approvals import ledger
from approvals.models import Event, Rule
from tests.conftest import call, calls, make_user, says

NAME, MAIL = "Mirabel Ostrander", "mirabel@mail.example"


@pytest.fixture
def about_her(clerk, dana) -> Run:
    """A finished run about a person whose name is marked, and whose address is recognised by its shape."""
    Tool.objects.filter(name="pay").update(pii_fields=["memo"])
    run = clerk.run(
        calls(call("p", "pay", account="a", amount=5, memo=NAME), text=f"{NAME} asked."),
        says(f"Wrote to {MAIL}."),
        input=f"Pay {NAME}, {MAIL}.",
        conversation="ticket-4",
    )
    [approval] = clerk.open(run)
    clerk.decide(approval, dana)
    return clerk.drive(run)


@pytest.fixture
def approver(client: Client, dana: User) -> Client:
    client.force_login(dana)
    return client


def pages(run: Run) -> list[str]:
    views = ["", "?step=1&call=0", "?step=1&call=0&tab=raw", "?view=conversation", "?view=events", "chat/"]
    return [f"/runs/{run.pk}/{view}" for view in [*views, "1/0/arguments.json"]]


def said(client: Client, url: str) -> str:
    response = client.get(url)
    assert response.status_code == 200, url
    return html.unescape(response.content.decode())


def ask(client: Client, run: Run, **more: str) -> object:
    return client.post(f"/runs/{run.pk}/personal-data/", more)


def revealed() -> list[Event]:
    return list(Event.objects.filter(type="privacy.revealed"))


def test_it_is_masked_even_for_whoever_has_the_right(approver, about_her) -> None:
    for url in pages(about_her):
        text = said(approver, url)
        assert NAME not in text, url
        assert MAIL not in text, url
    assert "Show personal data" in said(approver, f"/runs/{about_her.pk}/")
    assert "Show personal data" in said(approver, f"/runs/{about_her.pk}/chat/")
    assert revealed() == []


def test_asking_for_it_is_an_event_that_names_the_run_and_no_value(approver, about_her, dana) -> None:
    here = f"/runs/{about_her.pk}/?step=1&call=0"
    response = ask(approver, about_her, here=here)
    assert (response.status_code, response.headers["Location"]) == (302, here)
    [event] = revealed()
    assert (event.run_id, event.actor) == (about_her.pk, ledger.actor_of(dana))
    assert event.data == {"run": str(about_her.pk), "seconds": SHOWN_SECONDS}
    assert ledger.verify()[1] is None


def test_then_it_is_shown_on_the_pages_of_this_run(approver, about_her) -> None:
    ask(approver, about_her)
    assert NAME in said(approver, f"/runs/{about_her.pk}/?step=1&call=0")
    assert MAIL in said(approver, f"/runs/{about_her.pk}/chat/")
    assert NAME in said(approver, f"/runs/{about_her.pk}/1/0/arguments.json")
    assert "Personal data is shown to you until" in said(approver, f"/runs/{about_her.pk}/")
    assert len(revealed()) == 1


def test_another_run_stays_masked(approver, about_her, clerk) -> None:
    other = clerk.run(says(f"Wrote to {MAIL}."), input=f"Write to {MAIL}.")
    ask(approver, about_her)
    assert MAIL not in said(approver, f"/runs/{other.pk}/")


def test_another_session_stays_masked(approver, about_her, dana) -> None:
    ask(approver, about_her)
    elsewhere = Client()
    elsewhere.force_login(dana)
    assert MAIL not in said(elsewhere, f"/runs/{about_her.pk}/")


def test_it_ends_by_itself(approver, about_her) -> None:
    ask(approver, about_her)
    session = approver.session
    [(name, until)] = session["personal_data_of_runs"].items()
    assert (name, until <= time.time() + SHOWN_SECONDS) == (str(about_her.pk), True)
    session["personal_data_of_runs"] = {name: until - SHOWN_SECONDS - 1}
    session.save()
    assert MAIL not in said(approver, f"/runs/{about_her.pk}/")


def test_it_can_be_masked_again(approver, about_her) -> None:
    ask(approver, about_her)
    ask(approver, about_her, hide="1")
    assert MAIL not in said(approver, f"/runs/{about_her.pk}/")
    assert len(revealed()) == 1


def test_who_loses_the_right_loses_the_sight(approver, about_her, dana) -> None:
    ask(approver, about_her)
    dana.groups.set(Group.objects.filter(name="viewer"))
    assert MAIL not in said(approver, f"/runs/{about_her.pk}/")


def test_without_the_right_it_is_refused_and_not_offered(client, about_her, dana) -> None:
    dana.groups.set(Group.objects.filter(name="viewer"))
    client.force_login(dana)
    assert "Show personal data" not in said(client, f"/runs/{about_her.pk}/")
    assert ask(client, about_her).status_code == 403
    assert MAIL not in said(client, f"/runs/{about_her.pk}/")
    assert revealed() == []


def test_a_run_that_is_not_theirs_to_see_is_not_there(approver, about_her) -> None:
    assert approver.post("/runs/00000000-0000-4000-8000-000000000000/personal-data/").status_code == 404
    assert revealed() == []


def test_it_leads_nowhere_else(approver, about_her) -> None:
    response = ask(approver, about_her, here="https://elsewhere.example/")
    assert response.headers["Location"] == f"/runs/{about_her.pk}/"


def test_it_is_asked_for_by_a_post_that_comes_from_here(about_her, dana) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(dana)
    assert client.get(f"/runs/{about_her.pk}/personal-data/").status_code == 405
    assert ask(client, about_her).status_code == 403
    assert revealed() == []


def test_the_trail_has_a_word_for_it() -> None:
    assert vocabulary.deed_of("privacy.revealed", "{}").word == "saw-personal"


def test_a_request_shows_it_to_whoever_may_decide_and_not_to_who_may_only_decide_others(client, clerk, roles, dana):
    Rule.objects.create(name="paying", tool="pay", verdict="ask", risk="high").groups.add(roles["approver"])
    Tool.objects.filter(name="pay").update(pii_fields=["memo"])
    run = clerk.run(calls(call("p", "pay", account="ana", amount=20, memo=NAME)), says("done"))
    [approval] = clerk.open(run)
    others = Group.objects.create(name="others")
    others.permissions.add(*Permission.objects.filter(codename__in=["decide_approval", "view_approval", "view_run"]))
    eve = make_user("Eve Else")
    eve.groups.add(others)

    client.force_login(eve)
    page = said(client, f"/approvals/{approval.pk}/")
    assert "not decide it" in page
    assert NAME not in page
    assert NAME not in said(client, f"/runs/{run.pk}/chat/")
    client.force_login(dana)
    assert NAME in said(client, f"/approvals/{approval.pk}/")


def test_the_list_beside_a_request_shows_it_of_no_other(client, clerk, roles, dana) -> None:
    Rule.objects.create(name="paying", tool="pay", verdict="ask", risk="high").groups.add(roles["approver"])
    others = Group.objects.create(name="others")
    others.permissions.add(*Permission.objects.filter(codename__in=["decide_approval", "view_approval", "view_run"]))
    Rule.objects.create(name="labels", tool="label", verdict="ask").groups.add(others)
    Tool.objects.filter(name="pay").update(pii_fields=["memo"], title_template="Pay {memo}")
    Tool.objects.filter(name="label").update(pii_fields=["text"])
    pay = clerk.open(clerk.run(calls(call("p", "pay", account="ana", amount=20, memo=NAME)), says("done")))[0]
    own = clerk.open(clerk.run(calls(call("l", "label", text="Ulla Under")), says("done")))[0]
    eve = make_user("Eve Else")
    eve.groups.add(others)
    client.force_login(eve)

    for chosen, about_own in ((own, True), (pay, False)):
        page = said(client, f"/inbox/?id={chosen.pk}")
        assert f"apr-{pay.pk}" in page
        assert NAME not in page
        assert ("Ulla Under" in page) is about_own
    dana.user_permissions.add(Permission.objects.get(codename="reveal_pii"))
    client.force_login(dana)
    assert f"Pay {NAME}" in said(client, f"/inbox/?id={pay.pk}")
