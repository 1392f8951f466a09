"""Forking a run from its page, replaying it, and two runs side by side."""

import re
import uuid
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from agentapp import actions
from agentapp.models import Run, Tool, ToolExecution
from agentapp.tools.base import tool
from tests import clerk_tools
from tests.conftest import Clerk, call, calls, says
from tests.forks import DONE, LOOK, PAY, fork

QUERIES = 12


@pytest.fixture
def paid(clerk: Clerk, dana: User) -> Run:
    run = clerk.run(LOOK, PAY, DONE, input="Pay Ana.")
    clerk.decide(clerk.open(run)[0], dana)
    return clerk.drive(run)


@pytest.fixture
def sams(client: Client, sam: User) -> Client:
    client.force_login(sam)
    return client


def page(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, path
    return answer.content.decode()


def finish(clerk: Clerk, run: Run) -> Run:
    for _ in range(20):
        if clerk.drive(run).is_final:
            break
    return run


def fields(html: str) -> dict[str, Any]:
    """What a page's form would send, as it stands."""
    form = html.split('class="branch-form"')[1]
    found: dict[str, Any] = {}
    for tag in re.findall(r"<input [^>]*>", form):
        attributes = dict(re.findall(r'([a-z-]+)="([^"]*)"', tag))
        if attributes.get("type") != "checkbox" and "name" in attributes:
            value = unescape(attributes.get("value", ""))
            found[attributes["name"]] = [*found.get("shown", []), value] if attributes["name"] == "shown" else value
    areas = re.findall(r'<textarea[^>]*name="([^"]+)"[^>]*>([^<]*)</textarea>', form)
    return found | {name: unescape(text) for name, text in areas}


# --- The form ---------------------------------------------------------------------------------


def test_the_page_of_a_run_leads_to_its_fork_and_its_replay(sams: Client, paid: Run) -> None:
    html = page(sams, f"/runs/{paid.pk}/?step=2&call=0")
    assert f'href="/runs/{paid.pk}/fork/"' in html
    assert f'href="/runs/{paid.pk}/replay/"' in html
    assert f'href="/runs/{paid.pk}/fork/?step=2&amp;call=0"' in html
    assert f'href="/runs/{paid.pk}/fork/?step=2"' in page(sams, f"/runs/{paid.pk}/?step=2")


def test_who_may_not_start_runs_is_offered_neither(client: Client, mia: User, paid: Run) -> None:
    client.force_login(mia)
    html = page(client, f"/runs/{paid.pk}/?step=2")
    assert "/fork/" not in html
    for path in ("fork", "replay"):
        assert client.get(f"/runs/{paid.pk}/{path}/").status_code == 403
        assert client.post(f"/runs/{paid.pk}/{path}/").status_code == 403
    assert Run.objects.count() == 1


def test_who_may_not_see_a_run_is_not_told_of_it(client: Client, paid: Run, sam: User, otto: User) -> None:
    for who, known in ((otto, paid.pk), (sam, uuid.uuid4())):
        client.force_login(who)
        assert client.get(f"/runs/{known}/fork/").status_code in (403, 404)
        assert client.get(f"/runs/compare/?a={known}&b={known}").status_code == 404


def test_the_form_says_what_is_kept_what_stays_done_and_what_is_real(sams: Client, paid: Run) -> None:
    html = page(sams, f"/runs/{paid.pk}/fork/?step=3")
    assert "none of it runs again" in html
    assert '">pay</a> <span class="t2">stays done</span>' in html
    assert "Everything from here on is real" in html
    html = page(sams, f"/runs/{paid.pk}/fork/?step=2")
    assert f"Done by {paid.reference} later, and not taken back:" in html
    assert "obeys today’s rules" in html


def test_a_fork_as_the_form_stands_changes_nothing_and_a_second_press_starts_nothing(sams: Client, paid: Run) -> None:
    sent = fields(page(sams, f"/runs/{paid.pk}/fork/?step=2")) | {"act": "start"}
    for _ in range(2):
        answer = sams.post(f"/runs/{paid.pk}/fork/", sent)
    forked = Run.objects.exclude(pk=paid.pk).get()
    assert answer.headers["Location"] == f"/runs/{forked.pk}/"
    assert (forked.changed, forked.steps_kept, forked.branch, forked.is_mocked) == ([], 1, "fork", False)


def test_what_is_changed_in_the_form_is_changed_in_the_fork(sams: Client, paid: Run) -> None:
    sent = fields(page(sams, f"/runs/{paid.pk}/fork/?step=2")) | {
        "act": "start", "instructions": "Be kind.\r\nBe brief.", "model_settings": '{"temperature": 0}', "sandbox": "1",
    }  # fmt: skip
    sams.post(f"/runs/{paid.pk}/fork/", sent)
    forked = Run.objects.exclude(pk=paid.pk).get()
    assert forked.agent_snapshot["instructions"] == "Be kind.\nBe brief."
    assert (forked.changed, forked.is_mocked) == (["instructions", "model_settings"], True)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"model_settings": "{"}, "The settings are not valid JSON"),
        ({"model": "nonsense"}, "is not a model name"),
        ({"input": ""}, "The input is empty."),
        ({"input": "•••••• Bob."}, "masked part"),
    ],
)
def test_what_cannot_be_is_said_and_what_was_written_is_kept(
    sams: Client, paid: Run, wrong: dict[str, str], said: str
) -> None:
    sent = fields(page(sams, f"/runs/{paid.pk}/fork/")) | {"act": "start", "instructions": "Be kind."} | wrong
    answer = sams.post(f"/runs/{paid.pk}/fork/", sent)
    html = answer.content.decode()
    assert answer.status_code == 422
    assert said in html
    assert "Be kind." in html
    assert Run.objects.count() == 1


def test_arguments_are_fields_and_one_that_does_not_fit_is_marked(sams: Client, clerk: Clerk, paid: Run) -> None:
    html = page(sams, f"/runs/{paid.pk}/fork/?step=2&call=0")
    sent = fields(html) | {"act": "start"}
    assert "Arguments of pay" in html
    amount = next(name for name in sent if name.endswith("amount"))
    wrong = sams.post(f"/runs/{paid.pk}/fork/", sent | {amount: "-3"})
    assert wrong.status_code == 422
    assert "Nothing was started." in wrong.content.decode()
    sams.post(f"/runs/{paid.pk}/fork/", sent | {amount: "7"})
    forked = clerk.drive(Run.objects.exclude(pk=paid.pk).get())
    assert (clerk.open(forked)[0].title, forked.changed) == ("Pay $7.00 to Ana", ["arguments"])
    assert len(clerk_tools.effects_of("pay")) == 1


def test_a_button_of_the_fields_changes_the_form_in_place_and_starts_nothing(sams: Client, paid: Run) -> None:
    sent = fields(page(sams, f"/runs/{paid.pk}/fork/?step=2&call=0")) | {"add": "arg.lines", "instructions": "Be kind."}
    assert "<title>" in sams.post(f"/runs/{paid.pk}/fork/", sent).content.decode()
    part = sams.post(f"/runs/{paid.pk}/fork/", sent, headers={"HX-Request-Type": "partial"}).content.decode()
    assert part.strip().startswith('<div class="branch" id="request"')
    assert "Be kind." in part
    assert Run.objects.count() == 1


def test_a_secret_argument_is_typed_anew_and_is_never_on_the_page(sams: Client, clerk: Clerk, offer: Any) -> None:
    @tool(effect="irreversible")
    def open_vault(name: str, pin: str) -> str:
        """Open a vault."""
        return name

    Tool.objects.filter(pk=offer(open_vault)["open_vault"].pk).update(secret_fields=["pin"])
    run = clerk.run(calls(call("v", "open_vault", name="left", pin="hush-4711")), DONE)
    actions.cancel_run(run.pk, clerk.starter)
    html = page(sams, f"/runs/{run.pk}/fork/?step=1&call=0")
    assert "hush" not in html
    assert "Type it again." in html
    sent = fields(html) | {"act": "start"}
    answer = sams.post(f"/runs/{run.pk}/fork/", sent)
    assert (answer.status_code, "Type it again" in answer.content.decode()) == (422, True)
    sams.post(f"/runs/{run.pk}/fork/", sent | {"secret.pin": "0815-hidden"})
    forked = clerk.drive(Run.objects.exclude(pk=run.pk).get())
    assert ToolExecution.objects.get(run=forked).args["pin"] == "0815-hidden"


def test_what_is_masked_in_the_input_stays_as_it_was(sams: Client, clerk: Clerk) -> None:
    run = clerk.run(DONE, input="Write to ana.pereira@example.org about order 7.")
    html = page(sams, f"/runs/{run.pk}/fork/")
    assert "ana.pereira" not in html
    sent = fields(html) | {"act": "start"}
    assert "••••••" in sent["input"]
    sams.post(f"/runs/{run.pk}/fork/", sent)
    forked = Run.objects.exclude(pk=run.pk).get()
    assert (forked.input, forked.changed) == (run.input, [])


def test_a_run_that_cannot_be_forked_says_why(sams: Client, clerk: Clerk) -> None:
    run = clerk.run(PAY)
    for path in ("fork", "replay"):
        answer = sams.get(f"/runs/{run.pk}/{path}/")
        assert answer.status_code == 409
        assert "The run has not ended" in answer.content.decode()


def test_a_call_that_is_none_is_not_found(sams: Client, paid: Run) -> None:
    assert sams.get(f"/runs/{paid.pk}/fork/?step=2&call=7").status_code == 404
    assert "From step" in page(sams, f"/runs/{paid.pk}/fork/?step=nonsense&call=-1")


# --- Links, and what a page costs -------------------------------------------------------------


def test_a_fork_and_its_origin_lead_to_each_other(sams: Client, clerk: Clerk, paid: Run, sam: User) -> None:
    forked = clerk.drive(fork(paid, sam, 2, instructions="Be kind."))
    html = page(sams, f"/runs/{forked.pk}/")
    assert f'from <a class="txt" href="/runs/{paid.pk}/?step=2">step 2</a> of' in html
    assert "other instructions" in html
    assert f'href="/runs/compare/?a={paid.pk}&amp;b={forked.pk}"' in html
    assert f'href="/runs/{forked.pk}/"' in page(sams, f"/runs/{paid.pk}/?step=1")
    assert "Forked from here" in page(sams, f"/runs/{paid.pk}/?step=2")
    assert "Forked from here" not in page(sams, f"/runs/{paid.pk}/?step=1")
    assert "Retry as a new run" not in html
    assert "Run again" not in html


def test_the_pages_ask_few_questions(
    sams: Client, clerk: Clerk, paid: Run, sam: User, django_assert_max_num_queries: Any
) -> None:
    forked = clerk.drive(fork(paid, sam, 3))
    again = clerk.drive(fork(forked, sam, 1))
    for path in (
        f"/runs/{again.pk}/",
        f"/runs/{paid.pk}/?step=2&call=0",
        f"/runs/{paid.pk}/fork/?step=2&call=0",
        f"/runs/{forked.pk}/fork/?step=1",
        f"/runs/{paid.pk}/replay/",
        f"/runs/compare/?a={paid.pk}&b={forked.pk}",
        f"/runs/compare/?a={forked.pk}&b={again.pk}",
    ):
        with django_assert_max_num_queries(QUERIES):
            page(sams, path)


def test_however_often_forks_were_forked_the_pages_ask_as_few(
    sams: Client, clerk: Clerk, paid: Run, sam: User, django_assert_max_num_queries: Any
) -> None:
    last = paid
    for _ in range(8):
        last = clerk.drive(fork(last, sam, 3 if last == paid else 1))
    assert last.state == Run.State.SUCCEEDED
    for path in (
        f"/runs/{last.pk}/",
        f"/runs/{last.pk}/fork/?step=1",
        f"/runs/{last.pk}/replay/",
        f"/runs/compare/?a={paid.pk}&b={last.pk}",
    ):
        with django_assert_max_num_queries(QUERIES):
            page(sams, path)


# --- Replaying and comparing ------------------------------------------------------------------


def test_a_replay_leads_to_its_comparison_and_a_second_press_starts_nothing(
    sams: Client, clerk: Clerk, paid: Run
) -> None:
    html = page(sams, f"/runs/{paid.pk}/replay/")
    assert "Nothing can happen." in html
    key = re.search(r'name="request_key" value="([^"]+)"', html)
    assert key is not None
    for _ in range(2):
        answer = sams.post(f"/runs/{paid.pk}/replay/", {"request_key": key[1]})
    replay = Run.objects.exclude(pk=paid.pk).get()
    there = f"/runs/compare/?a={paid.pk}&b={replay.pk}"
    assert answer.headers["Location"] == there
    assert "has not ended" in page(sams, there)
    finish(clerk, replay)
    html = page(sams, there)
    assert "They are the same" in html
    assert "A replay." in page(sams, f"/runs/{replay.pk}/")
    assert len(clerk_tools.effects_of("pay")) == 1


def test_any_two_runs_of_an_agent_are_compared_by_reference(sams: Client, clerk: Clerk, paid: Run) -> None:
    other = clerk.run(calls(call("l", "look_up", what="<b>cup</b>")), says("No."))
    html = page(sams, f"/runs/compare/?a={paid.reference}&b={other.reference}")
    assert "Different" in html
    assert "&lt;b&gt;cup&lt;/b&gt;" in html
    assert "They ended differently: another answer." in html
    assert "<b>1</b>" not in html


def test_secrets_and_personal_data_are_masked_in_a_comparison(sams: Client, clerk: Clerk) -> None:
    runs = [clerk.run(calls(call("l", "look_up", what=f"{who}@example.org")), DONE) for who in ("ana", "bob")]
    html = page(sams, f"/runs/compare/?a={runs[0].pk}&b={runs[1].pk}")
    assert "@example.org" not in html
    assert "••••••" in html


@pytest.mark.parametrize(("a", "b", "status"), [("", "", 200), ("nonsense", "run_000000", 404)])
def test_without_two_runs_it_asks_for_them(sams: Client, db: None, a: str, b: str, status: int) -> None:
    answer = sams.get("/runs/compare/", {"a": a, "b": b})
    assert answer.status_code == status
    assert 'name="a"' in answer.content.decode()


def test_runs_of_two_agents_are_compared_only_where_both_are_mocked(sams: Client, clerk: Clerk, paid: Run) -> None:
    mocks = {"tools": {"look_up": {"answers": [{"sequence": [{"result": 7}]}]}}}
    mocked, *others = clerk.run(LOOK, DONE, mocks=mocks), clerk.run(DONE), clerk.run(LOOK, DONE, mocks=mocks)
    clerk.agent.pk, clerk.agent.name = uuid.uuid4(), "other"
    clerk.agent.save(force_insert=True)
    kept = {**mocked.agent_snapshot, "name": "other"}
    for run in others:
        Run.objects.filter(pk=run.pk).update(agent=clerk.agent, agent_snapshot=kept)
    for a, b in ((paid, others[0]), (paid, others[1]), (mocked, others[0])):
        answer = sams.get(f"/runs/compare/?a={a.pk}&b={b.pk}")
        assert (answer.status_code, "two agents, clerk and other" in answer.content.decode()) == (422, True)
    html = page(sams, f"/runs/compare/?a={mocked.pk}&b={others[1].pk}")
    assert "<dt>Agent</dt><dd>clerk</dd>" in html
    assert "<dt>Agent</dt><dd>other</dd>" in html
    assert "They are the same" in html


def test_the_list_of_runs_says_what_a_fork_comes_from(sams: Client, paid: Run, sam: User) -> None:
    assert "Fork of" not in page(sams, "/runs/")
    made = fork(paid, sam, step=2)
    shown = page(sams, "/runs/")
    row = shown.split(f'id="run-{made.pk}"')[1].split("</tr>")[0]
    assert f'href="/runs/{paid.pk}/?step=2"' in row
    assert f"Fork of {paid.reference}" in row
    assert "Fork of" not in shown.split(f'id="run-{paid.pk}"')[1].split("</tr>")[0]
