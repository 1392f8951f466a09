"""Trying a run again from its page: from the beginning, from a step, or from where it stopped."""

from collections.abc import Callable
from decimal import Decimal

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from agentapp import actions
from agentapp.models import Run
from tests.agentapp.run_builder import RunBuilder
from tests.conftest import Clerk, call, calls, says

LOOK = calls(call("l", "look_up", what="kettle"), text="I look.")


@pytest.mark.django_db
def test_a_run_begins_anew_with_the_same_input_as_whoever_asks(client: Client, sam: User, mia: User) -> None:
    run = RunBuilder(sam, "Where is it?", customer="Ana")
    run.claim()
    run.finish("failed", "error", "Broken.")
    client.force_login(sam)
    assert "Retry as a new run" in client.get(f"/runs/{run.id}/").content.decode()
    for _ in range(2):
        answer = client.post(f"/runs/{run.id}/again/", {"request_key": "once"}, follow=True)
    new = Run.objects.exclude(pk=run.id).get()
    assert (new.input, new.customer, new.starter, new.cost) == ("Where is it?", "Ana", sam, Decimal(0))
    assert f"This is a new run with the input of {run.run.reference}." in answer.content.decode()
    client.force_login(mia)
    refused = client.post(f"/runs/{run.id}/again/", follow=True).content.decode()
    assert "No new run was started." in refused
    assert client.get(f"/runs/{run.id}/again/").status_code == 405


def test_what_is_masked_for_whoever_asks_stays_whole_in_the_new_run(client: Client, clerk: Clerk, sam: User) -> None:
    whole = "Write to ana@example.com."
    failed = clerk.run({"error": "Gone."}, input=whole, customer="ana@example.com")
    for group in sam.groups.all():
        group.permissions.remove(*group.permissions.filter(codename="reveal_pii"))
    client.force_login(sam)
    assert "ana@example.com" not in client.get(f"/runs/{failed.pk}/").text
    client.post(f"/runs/{failed.pk}/again/", {"request_key": "once"})
    new = Run.objects.exclude(pk=failed.pk).get()
    assert (new.input, new.customer) == (whole, "ana@example.com")


@pytest.fixture
def failed(clerk: Clerk) -> Run:
    return clerk.run(LOOK, LOOK, {"error": "The provider is gone."}, input="Where is my kettle?")


def first_steps(page: str) -> list[str]:
    """The steps from which the page's forms would retry."""
    return [part.split('"')[0] for part in page.split('name="first" value="')[1:]]


def test_each_step_but_the_first_can_be_begun_with(client: Client, clerk: Clerk, failed: Run, sam: User) -> None:
    client.force_login(sam)
    page = client.get(f"/runs/{failed.pk}/?step=2").content.decode()
    assert first_steps(page) == ["1", "1", "3", "2"]  # the head, its menu on a phone, where it stopped, this step
    assert "Retry from here" in page
    inspector = client.get(
        f"/runs/{failed.pk}/?step=2",
        headers={"HX-Request": "true", "HX-Request-Type": "partial", "HX-Target": "section#inspector"},
    )
    assert first_steps(inspector.content.decode()) == ["2"]
    assert "Retry from here" not in client.get(f"/runs/{failed.pk}/?step=1").content.decode()


def test_the_new_run_says_after_what_it_goes_on(client: Client, clerk: Clerk, failed: Run, sam: User) -> None:
    client.force_login(sam)
    answer = client.post(f"/runs/{failed.pk}/again/", {"first": "3"}, follow=True).content.decode()
    new = Run.objects.exclude(pk=failed.pk).get()
    assert (new.retry_of, new.steps_kept) == (failed, 2)
    assert "What that one did before step 3 counts as done." in answer
    assert f'Continues after step 2 of <a class="mono" href="/runs/{failed.pk}/"' in answer


def test_a_run_that_answered_has_nothing_to_go_on_with(client: Client, clerk: Clerk, sam: User) -> None:
    run = clerk.run(LOOK, says("Here."))
    client.force_login(sam)
    assert first_steps(client.get(f"/runs/{run.pk}/?step=2").content.decode()) == ["1", "1", "2"]


def test_who_may_not_start_runs_is_offered_no_retry(client: Client, clerk: Clerk, failed: Run, mia: User) -> None:
    client.force_login(mia)
    assert first_steps(client.get(f"/runs/{failed.pk}/?step=2").content.decode()) == []


def erased(run: Run) -> None:
    Run.objects.filter(pk=run.pk).update(erased_at=timezone.now(), erased_by="user:1:ada")


def a_trial(run: Run) -> None:
    Run.objects.filter(pk=run.pk).update(is_trial=True)


def mocked(run: Run) -> None:
    Run.objects.filter(pk=run.pk).update(mocks={})


@pytest.mark.parametrize("made", [erased, a_trial, mocked])
def test_what_cannot_be_tried_again_is_offered_nowhere(
    client: Client, clerk: Clerk, failed: Run, sam: User, made: Callable[[Run], None]
) -> None:
    client.force_login(sam)
    again, lists = f"/runs/{failed.pk}/again/", "/runs/?mocked=1" if made is mocked else "/runs/"
    assert again in client.get("/runs/").text
    made(failed)
    for page in (f"/runs/{failed.pk}/?step=2", lists):
        text = client.get(page).text
        assert str(failed.pk) in text
        assert again not in text
    assert "No new run was started." in client.post(again, {"request_key": "once"}, follow=True).text


@pytest.mark.parametrize("first", ["0", "9", "two", "-1", "1" * 20])
def test_a_step_that_is_none_is_refused_with_words(
    client: Client, clerk: Clerk, failed: Run, sam: User, first: str
) -> None:
    client.force_login(sam)
    answer = client.post(f"/runs/{failed.pk}/again/", {"first": first}, follow=True).content.decode()
    assert "No new run was started." in answer
    assert Run.objects.count() == 1


def test_a_run_under_way_is_not_tried_again(client: Client, clerk: Clerk, sam: User) -> None:
    run = clerk.run(calls(call("p", "pay", account="ana", amount=5)))
    client.force_login(sam)
    answer = client.post(f"/runs/{run.pk}/again/", follow=True).content.decode()
    assert "The run has not ended" in answer
    assert Run.objects.count() == 1


def test_a_call_that_nobody_decided_is_had_proposed_again_by_those_who_start_runs(
    client: Client, clerk: Clerk, sam: User, mia: User
) -> None:
    pay = calls(call("p", "pay", account="ana", amount=5))
    run = clerk.run(LOOK, pay, says("Paid."))
    (asked,) = clerk.open(run)
    client.force_login(sam)
    assert "Have it proposed again" not in client.get(f"/approvals/{asked.pk}/").content.decode()
    actions.cancel_run(run.pk, sam)
    page = client.get(f"/approvals/{asked.pk}/").content.decode()
    assert "Have it proposed again" in page
    assert first_steps(page) == ["2"]
    client.post(f"/runs/{run.pk}/again/", {"first": "2"})
    again = clerk.drive(Run.objects.get(retry_of=run))
    (renewed,) = clerk.open(again)
    assert (renewed.tool, renewed.arguments_text) == (asked.tool, asked.arguments_text)
    client.force_login(mia)
    assert first_steps(client.get(f"/approvals/{asked.pk}/").content.decode()) == []
