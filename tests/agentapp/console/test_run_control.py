"""The buttons on a run: pause, resume, allow more."""

from decimal import Decimal

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client

from agentapp import actions
from agentapp.models import Agent, Run
from tests.conftest import Clerk, call, calls, says


@pytest.fixture
def ada_client(client: Client, ada: User) -> Client:
    client.force_login(ada)
    return client


def page(client: Client, run: Run) -> str:
    return client.get(f"/runs/{run.pk}/").content.decode()


def test_a_run_is_paused_and_resumed_from_its_page(clerk: Clerk, ada_client: Client) -> None:
    run = clerk.start(says("done"))
    assert f"/runs/{run.pk}/pause/" in page(ada_client, run)

    response = ada_client.post(f"/runs/{run.pk}/pause/", follow=True)

    assert "The run is paused." in response.content.decode()
    assert "Nothing runs until somebody resumes it." in page(ada_client, run)
    assert "goes on where it was" in ada_client.post(f"/runs/{run.pk}/resume/", follow=True).content.decode()
    assert clerk.drive(run).state == "succeeded"


def test_a_paused_run_shows_resume_and_an_ended_one_neither(clerk: Clerk, ada_client: Client) -> None:
    run = clerk.start(says("done"))
    ada_client.post(f"/runs/{run.pk}/pause/")
    assert f"/runs/{run.pk}/resume/" in page(ada_client, run)
    assert f"/runs/{run.pk}/pause/" not in page(ada_client, run)
    ada_client.post(f"/runs/{run.pk}/resume/")
    clerk.drive(run)
    assert "/pause/" not in page(ada_client, run)
    assert "has ended" in ada_client.post(f"/runs/{run.pk}/pause/", follow=True).content.decode()


def test_who_cannot_resume_what_a_manager_paused_is_offered_no_button(
    clerk: Clerk, client: Client, sam: User, mia: User
) -> None:
    run = clerk.start(says("done"))
    Group.objects.get(name="operator").permissions.remove(Permission.objects.get(codename="pause_run"))
    actions.pause_run(run.pk, mia)
    pages = (f"/runs/{run.pk}/", f"/runs/{run.pk}/chat/", "/runs/")
    for user, offered in ((sam, False), (mia, True)):
        client.force_login(user)
        for url in pages:
            html = client.get(url).content.decode()
            assert (f"/runs/{run.pk}/resume/" in html) is offered, (user, url)
            told = "Mia Manager has paused this run. Resuming it needs the right" in html
            assert told is (not offered and url != "/runs/"), (user, url)
    client.force_login(sam)
    assert "has paused this run." in client.post(f"/runs/{run.pk}/resume/", follow=True).content.decode()


LIST = {"HX-Request": "true", "HX-Request-Type": "partial", "HX-Target": "div#runs"}


def test_what_is_done_in_the_list_is_not_said_on_the_page_of_another_run(clerk: Clerk, ada_client: Client) -> None:
    run, other = clerk.start(says("done")), clerk.start(says("done"))

    paused = ada_client.post(f"/runs/{run.pk}/pause/", headers=LIST)

    run.refresh_from_db()
    assert (paused.status_code, paused.content, run.state) == (204, b"", "paused")
    assert "The run is paused." not in page(ada_client, other)


def test_what_is_refused_in_the_list_is_said_there_and_nowhere_else(clerk: Clerk, ada_client: Client) -> None:
    run, other = clerk.run(says("done")), clerk.start(says("done"))

    refused = ada_client.post(f"/runs/{run.pk}/pause/", headers=LIST)

    assert refused.status_code == 403
    assert "data-failed" in refused.content.decode()
    assert "has ended" in refused.content.decode()
    assert "data-retry" not in refused.content.decode()  # it would have the same result
    assert "has ended" not in page(ada_client, other)


@pytest.mark.parametrize("what", ["pause", "resume", "budget"])
def test_looking_at_a_button_presses_nothing(clerk: Clerk, ada_client: Client, what: str) -> None:
    run = clerk.start(says("done"))
    assert ada_client.get(f"/runs/{run.pk}/{what}/").status_code == 405


@pytest.mark.parametrize("what", ["pause", "resume", "budget"])
def test_an_outsider_is_not_told_that_there_is_such_a_run(clerk: Clerk, client: Client, otto: User, what: str) -> None:
    run = clerk.start(says("done"))
    client.force_login(otto)
    assert client.post(f"/runs/{run.pk}/{what}/", {"amount": "1"}).status_code == 404


@pytest.fixture
def out_of_budget(clerk: Clerk) -> Run:
    Agent.objects.update(max_cost=Decimal("0.01"), on_budget="ask")
    return clerk.run({**calls(call("c", "look_up", what="x")), "usage": {"cost": 0.01}}, says("done"))


def test_more_budget_is_allowed_from_the_page(clerk: Clerk, ada_client: Client, out_of_budget: Run) -> None:
    assert "Out of budget." in page(ada_client, out_of_budget)
    response = ada_client.post(f"/runs/{out_of_budget.pk}/budget/", {"amount": " $0.50 "}, follow=True)
    assert "may cost $0.50 more" in response.content.decode()
    assert clerk.drive(out_of_budget).state == "succeeded"


@pytest.mark.parametrize(
    ("typed", "allowed"),
    [("2,50", "2.50"), ("$2.50", "2.50"), ("2,50 $", "2.50"), ("1e2", "100"), ("1.234,50", "1234.50")],
)
def test_an_amount_is_read_however_it_is_written(
    ada_client: Client, out_of_budget: Run, typed: str, allowed: str
) -> None:
    response = ada_client.post(f"/runs/{out_of_budget.pk}/budget/", {"amount": typed}, follow=True)
    assert f"may cost ${allowed} more" in response.content.decode()
    out_of_budget.refresh_from_db()
    assert out_of_budget.budget_extra == Decimal(allowed)


@pytest.mark.parametrize(
    ("amount", "says"),
    [
        ("", "The run was allowed no more. Enter a number"),
        ("much", "The run was allowed no more. Enter a number"),
        ("NaN", "The run was allowed no more. Enter a number"),
        ("-1", "Give an amount above 0"),
        ("1,234", "The run was allowed no more. 1,234 can be read as 1234 and as 1.234. Enter the one you mean."),
    ],
)
def test_an_amount_that_is_none_or_could_be_two_changes_nothing_and_says_so(
    ada_client: Client, out_of_budget: Run, amount: str, says: str
) -> None:
    response = ada_client.post(f"/runs/{out_of_budget.pk}/budget/", {"amount": amount}, follow=True)
    assert says in response.content.decode()
    assert f'size="7" value="{amount}"' in response.content.decode()
    out_of_budget.refresh_from_db()
    assert out_of_budget.budget_extra == 0


def test_who_may_not_raise_budgets_sees_no_form(client: Client, dana: User, out_of_budget: Run) -> None:
    client.force_login(dana)
    shown = page(client, out_of_budget)
    assert "Out of budget." in shown
    assert "/budget/" not in shown


def test_a_partial_answer_says_that_it_is_one_and_what_ended_it(clerk: Clerk, ada_client: Client) -> None:
    Agent.objects.update(max_iterations=1)
    run = clerk.run(calls(call("c", "look_up", what="x")), says("As far as I got."))
    shown = page(ada_client, run)
    assert "The answer below is what it had by then." in shown
    assert "max_iterations" in shown


def test_the_list_is_narrowed_to_runs_that_ended_for_one_reason(clerk: Clerk, ada_client: Client) -> None:
    Agent.objects.update(max_iterations=0)
    clerk.run(says("As far as I got."), input="Limited")
    Agent.objects.update(max_iterations=5)
    clerk.run(says("done"), input="Whole")
    listed = ada_client.get("/runs/?reason=steps_limit").content.decode()
    assert "Limited" in listed
    assert "Whole" not in listed
    assert "Whole" in ada_client.get("/runs/?reason=nonsense").content.decode()
