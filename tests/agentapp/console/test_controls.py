"""The page of controls: what is stopped, and how people stop things and release them."""

import pytest
from django.test import Client
from django.utils import timezone

from agentapp import actions, switches
from agentapp.models import Breaker, KillSwitch
from approvals.models import Event
from tests.conftest import says


@pytest.fixture
def page(clerk, client: Client, mia):
    client.force_login(mia)
    return client


def test_a_manager_stops_an_agent_and_lets_it_go_on(page, clerk):
    shown = page.get("/switches/").content.decode()
    assert "Nothing is stopped." in shown
    stopped = page.post("/switches/", {"target": "agent:clerk", "reason": "It pays twice."}, follow=True)
    assert stopped.redirect_chain == [("/switches/", 302)]
    said = stopped.content.decode()
    assert "The agent clerk was stopped by Mia Manager: It pays twice. No new model or tool call that it" in said
    run = clerk.run(says("done"))
    assert run.waiting_for == "switch"
    released = page.post(f"/switches/{KillSwitch.objects.get().pk}/release/", follow=True)
    assert "Runs that check again now: 1." in released.content.decode()
    assert clerk.drive(run).state == "succeeded"


def test_what_is_refused_keeps_what_was_written(page):
    refused = page.post("/switches/", {"target": "agent:nobody", "reason": "Because <b>."})
    assert refused.status_code == 422
    text = refused.content.decode()
    assert "There is no agent named" in text
    assert "Because &lt;b&gt;." in text
    assert not KillSwitch.objects.exists()


def test_a_switch_that_somebody_else_has_released_is_not_there(page, mia):
    switch = actions.engage_switch("all", "", "x", mia)
    actions.release_switch(switch.pk, mia)
    assert page.post(f"/switches/{switch.pk}/release/").status_code == 404


def test_a_breaker_is_shown_with_its_last_error_and_can_be_reset(page):
    breaker = Breaker.objects.create(
        scope="tool", key="pay", state="open", opened_at=timezone.now(), failures=3, last_error="<i>down</i>"
    )
    shown = page.get("/switches/").content.decode()
    assert "3 of 3" in shown
    assert "&lt;i&gt;down&lt;/i&gt;" in shown
    assert page.post(f"/switches/breakers/{breaker.pk}/reset/", {"reason": " It is back. "}).status_code == 302
    breaker.refresh_from_db()
    assert (breaker.state, breaker.failures) == ("closed", 0)
    assert Event.objects.get(type="breaker.reset").data["reason"] == "It is back."


@pytest.mark.parametrize("reason", ["", "  "])
def test_a_breaker_is_not_reset_without_a_reason(page, reason):
    breaker = Breaker.objects.create(scope="tool", key="pay", state="open", opened_at=timezone.now(), failures=3)
    response = page.post(f"/switches/breakers/{breaker.pk}/reset/", {"reason": reason})
    assert response.status_code == 422
    assert "Say why" in response.content.decode()
    breaker.refresh_from_db()
    assert breaker.state == "open"


def test_looking_changes_nothing(page, mia):
    switch = actions.engage_switch("all", "", "x", mia)
    assert page.get(f"/switches/{switch.pk}/release/").status_code == 405
    assert KillSwitch.objects.filter(pk=switch.pk).exists()


def test_a_form_without_a_token_changes_nothing(clerk, mia):
    client = Client(enforce_csrf_checks=True)
    client.force_login(mia)
    assert client.post("/switches/", {"target": "all:", "reason": "x"}).status_code == 403
    assert not KillSwitch.objects.exists()


def test_who_may_not_stop_things_sees_neither_the_page_nor_the_way_to_it(clerk, client, dana, mia):
    switch = actions.engage_switch("all", "", "x", mia)
    client.force_login(dana)
    assert client.get("/switches/").status_code == 403
    assert client.post("/switches/", {"target": "all:", "reason": "x"}).status_code == 403
    assert client.post(f"/switches/{switch.pk}/release/").status_code == 403
    assert "/switches/" not in client.get("/runs/").content.decode()
    client.force_login(mia)
    assert "/switches/" in client.get("/runs/").content.decode()


def test_the_run_says_which_switch_holds_it_and_why(clerk, client, dana, mia):
    actions.engage_switch("tool", "pay", "Another <tool>.", mia)
    actions.engage_switch("agent", "clerk", "It pays <twice>.", mia)
    run = clerk.run(says("done"))
    client.force_login(dana)
    shown = client.get(f"/runs/{run.pk}/").content.decode()
    assert "Held by a kill switch." in shown
    assert "The agent clerk was stopped by Mia Manager: It pays &lt;twice&gt;." in shown
    assert "Another" not in shown
    assert "A kill switch" in client.get("/runs/").content.decode()


@pytest.mark.parametrize(
    ("reason", "end"), [("", " by Mia Manager."), ("test", ": test."), ("Test.", ": Test."), ("Why? ", ": Why?")]
)
def test_what_is_said_of_a_switch_ends_as_a_sentence_does(clerk, mia, reason, end):
    switch = KillSwitch(scope="agent", key="clerk", engaged_by=mia, reason=reason)
    assert switches.describe(switch).endswith(end)


@pytest.mark.parametrize("model", ["breaker", "killswitch"])
def test_the_admin_lists_them_and_changes_nothing(clerk, client, ada, mia, model):
    switch = actions.engage_switch("all", "", "x", mia)
    Breaker.objects.create(scope="tool", key="pay")
    client.force_login(ada)
    assert client.get(f"/admin/agentapp/{model}/").status_code == 200
    assert client.get(f"/admin/agentapp/{model}/add/").status_code == 403
    assert client.post(f"/admin/agentapp/killswitch/{switch.pk}/delete/", {"post": "yes"}).status_code == 403
