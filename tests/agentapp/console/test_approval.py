import json
import re
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agentapp import actions, executions, runs
from agentapp.console import beside
from agentapp.messages import ToolResult
from agentapp.models import Agent, Tool, ToolExecution
from approvals import decisions, ledger
from approvals.models import Approval, Decision, Event
from tests.rows import a_moment_ago, within_transaction

from .conftest import REFUND, posted

pytestmark = pytest.mark.django_db
Waiting = Callable[..., Approval]
MAX_QUERIES = 12


def html_of(client: Client, approval: Approval, **query: str) -> str:
    response = client.get(f"/approvals/{approval.pk}/", query)
    assert response.status_code == 200
    return response.content.decode()


def run_it(approval: Approval, result: ToolResult) -> None:
    """Play the worker: use the approval, begin the call and store its outcome."""
    approval.refresh_from_db()
    execution = ToolExecution.objects.get(pk=approval.execution_id)
    with ledger.transaction():
        runs.lock(approval.run_id)
        assert decisions.consume(approval)
        executions.begin(execution, approval.final_arguments_text, f"key-{execution.pk}")
        executions.finish([executions.Outcome(execution, result)])


def test_the_page_shows_what_will_happen_and_on_what_evidence(page: Client, waiting: Waiting) -> None:
    html = html_of(page, waiting(risk="high"))

    for text in (
        "<b>$214.50</b> for order <b>58213</b>",
        "High risk",
        "Cannot be taken back",
        "$214.50 leaves the shop",
        "ana@mail.example",
        "Refunds over $100.00 need one person.",
        "The kettle arrived with the glass cracked",
        "A claim, not a fact",
        "order_id 58213",
        "it is rejected automatically and the agent is told “no one decided”",
        "Runs in 60 s, undo until then",
        "Stopped by refunds-over-limit",
    ):
        assert text in html


def test_the_page_asks_the_database_few_things_whatever_its_history(
    page: Client, waiting: Waiting, marco: User
) -> None:
    group = Group.objects.get(name="approver")
    approval = waiting(groups=(group.pk,), approvals_needed=3)

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            html_of(page, approval)
        return len(captured)

    queries()
    one = queries()
    for _ in range(5):
        waiting(groups=(group.pk,))
    other = Client()
    other.force_login(marco)
    other.post(f"/approvals/{approval.pk}/decide/", posted(approval))

    # Two more queries: the decisions, and what was said of them later. Neither is made while there are none.
    assert queries() == one + 2 <= MAX_QUERIES


@pytest.mark.parametrize(
    ("scope", "key", "what"),
    [
        ("all", "", "Everything"),
        ("agent", "billing", "The agent billing"),
        ("tool", "refund_payment", "The tool refund_payment"),
    ],
)
@pytest.mark.parametrize("address", ["/approvals/{}/", "/inbox/peek/{}/"])
def test_whoever_decides_reads_which_switch_the_call_would_wait_for(
    page: Client, waiting: Waiting, mia: User, address: str, scope: str, key: str, what: str
) -> None:
    approval = waiting()
    Agent.objects.update(name="billing")

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            shown.append(page.get(address.format(approval.pk)).content.decode())
        return len(captured)

    shown: list[str] = []
    queries()
    before = queries()
    assert "60 s, undo until then" in shown[-1] or "Undo for 60 s" in shown[-1]
    actions.engage_switch(scope, key, "It pays <twice>", mia)

    assert queries() == before + 1 <= MAX_QUERIES
    assert f"<strong>{what} was stopped by Mia Manager: It pays &lt;twice&gt;.</strong>" in shown[-1]
    assert f"{what} was stopped by Mia Manager. Runs only when that is released" in shown[-1]
    assert not re.search(r"(in|for) 5 s", shown[-1])
    page.post(f"/approvals/{approval.pk}/decide/", posted(approval))
    queries()
    assert f"{what} was stopped by Mia Manager. Can be undone for" in shown[-1]
    a_moment_ago(approval, "runs_at")
    queries()
    assert "It runs only when that is released." in shown[-1]
    assert "Waiting for a worker" not in shown[-1]


@pytest.mark.parametrize("address", ["/approvals/{}/", "/inbox/peek/{}/"])
@pytest.mark.parametrize(
    ("hold", "who", "until"),
    [
        (actions.pause_run, "The run is paused by Mia Manager", "it is resumed"),
        (actions.take_over_run, "Mia Manager has taken the run over", "it is handed back"),
    ],
)
def test_whoever_decides_reads_that_somebody_holds_the_run(
    page: Client,
    waiting: Waiting,
    mia: User,
    address: str,
    hold: Callable[[uuid.UUID, User], Any],
    who: str,
    until: str,
) -> None:
    approval = waiting()

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            shown.append(page.get(address.format(approval.pk)).content.decode())
        return len(captured)

    shown: list[str] = []
    queries()
    hold(approval.run_id, mia)

    assert queries() <= MAX_QUERIES
    assert f"{who}. Runs only when {until}" in shown[-1]
    assert "Runs in 60 s" not in shown[-1]
    page.post(f"/approvals/{approval.pk}/decide/", posted(approval))
    queries()
    assert f"{who}. Can be undone for" in shown[-1]
    a_moment_ago(approval, "runs_at")
    queries()
    assert "Waiting for a worker" not in shown[-1]
    if until == "it is resumed":
        assert f"<strong>{who}.</strong> It runs only when it is resumed." in shown[-1]
        actions.resume_run(approval.run_id, mia)
        queries()
        assert who not in shown[-1]


def test_what_is_said_after_a_decision_is_true_of_a_paused_run(page: Client, waiting: Waiting, mia: User) -> None:
    approval = waiting()
    actions.pause_run(approval.run_id, mia)

    html = page.post(f"/approvals/{approval.pk}/decide/", posted(approval, next="inbox"), follow=True).content.decode()

    toast = html.partition("data-toast>")[2].partition("</form>")[0]
    assert "the run is held, can be undone for" in toast


def test_a_page_that_is_open_learns_what_is_stopped_since(page: Client, waiting: Waiting, mia: User) -> None:
    approval = waiting()
    state = f"/approvals/{approval.pk}/state/?version={approval.version}"
    assert "Runs in 60 s, undo until then" in page.get(state).content.decode()
    actions.engage_switch("all", "", "Everything rests.", mia)

    html = page.get(state).content.decode()

    assert '<hx-partial hx-target="#stopped"' in html
    assert "Everything was stopped by Mia Manager: Everything rests." in html
    assert "Runs only when that is released" in html
    assert "Show changes" not in html


def test_a_switch_for_something_else_is_in_nobodys_way(page: Client, waiting: Waiting, mia: User) -> None:
    approval = waiting()
    Agent.objects.create(name="another", driver="scripted")
    actions.engage_switch("agent", "another", "Not this one.", mia)

    assert "Runs in 60 s, undo until then" in html_of(page, approval)
    page.post(f"/approvals/{approval.pk}/decide/", posted(approval))
    a_moment_ago(approval, "runs_at")
    assert "Waiting for a worker to take it." in html_of(page, approval)


def test_a_rejection_waits_for_no_switch_of_its_tool(page: Client, waiting: Waiting, mia: User) -> None:
    approval = waiting()
    actions.engage_switch("tool", "refund_payment", "It pays twice.", mia)
    page.post(f"/approvals/{approval.pk}/decide/", posted(approval, type="reject", message="No."))

    html = html_of(page, approval)
    assert "The agent is told in" in html
    assert "was stopped" not in html
    actions.engage_switch("all", "", "Everything rests.", mia)
    assert "The agent is told when that is released." in html_of(page, approval)


def test_the_bar_under_the_countdown_shows_what_is_left(waiting: Waiting) -> None:
    approval = waiting(expires_seconds=1000)

    def left(seconds: int) -> int:
        return beside.left_percent(approval, approval.expires_at - timedelta(seconds=seconds))

    assert [left(seconds) for seconds in (2000, 1000, 250, 0, -5)] == [100, 100, 25, 0, 0]


@pytest.mark.parametrize("piece", ["side", "state"])
def test_an_outsider_sees_neither_page_nor_fragment(client: Client, waiting: Waiting, otto: User, piece: str) -> None:
    approval = waiting()
    client.force_login(otto)

    assert client.get(f"/approvals/{approval.pk}/").status_code == 404
    assert client.get(f"/approvals/{approval.pk}/{piece}/").status_code == 404


def test_a_request_for_another_group_is_not_found(page: Client, waiting: Waiting) -> None:
    approval = waiting(groups=(Group.objects.create(name="privacy").pk,))

    assert page.get(f"/approvals/{approval.pk}/").status_code == 404


def test_the_right_column_again_is_the_piece_in_the_page(page: Client, waiting: Waiting) -> None:
    approval = waiting(expires_seconds=90_000)

    whole, fragment = html_of(page, approval), page.get(f"/approvals/{approval.pk}/side/").content.decode()

    assert untokened(fragment).strip() in untokened(whole)


def untokened(html: str) -> str:
    """Without the form tokens, which Django writes differently in each answer."""
    return re.sub(r'name="csrfmiddlewaretoken" value="\w+"', "", html)


@pytest.mark.parametrize(
    "query", [{}, {"view": "diff"}, {"view": "json"}, {"do": "reject"}, {"do": "edit"}, {"do": "x"}]
)
def test_looking_changes_nothing(page: Client, waiting: Waiting, query: dict[str, str]) -> None:
    approval = waiting()
    events = Event.objects.count()

    html_of(page, approval, **query)

    approval.refresh_from_db()
    assert (approval.state, approval.version) == (Approval.State.PENDING, 1)
    assert Event.objects.count() == events
    assert not Decision.objects.exists()


def test_without_script_the_reject_dialog_is_a_link_away(page: Client, waiting: Waiting) -> None:
    approval = waiting()

    assert f'href="/approvals/{approval.pk}/?do=reject"' in html_of(page, approval)
    assert 'id="reject-dialog" aria-labelledby="reject-title" open' in html_of(page, approval, do="reject")


class TestDraft:
    FIELDS = {"shown": ["arg.amount"], "arg.amount": "184.50"}

    def test_it_shows_what_the_change_would_do(self, page: Client, waiting: Waiting) -> None:
        approval = waiting()

        html = page.post(f"/approvals/{approval.pk}/draft/", posted(approval, **self.FIELDS)).content.decode()

        for text in (
            "Refund $184.50 for order 58213",
            "<b>$184.50</b>",
            "Agent proposed <del>214.50</del>",
            "Approve $184.50, edited",
            "1 change by you",
        ):
            assert text in html

    def test_at_high_risk_the_bar_says_that_another_person_approves_a_change(
        self, page: Client, waiting: Waiting
    ) -> None:
        approval = waiting(risk="high")
        assert "Needs another person" not in page.get(f"/approvals/{approval.pk}/").content.decode()
        html = page.post(f"/approvals/{approval.pk}/draft/", posted(approval, **self.FIELDS)).content.decode()
        assert "Needs another person" in html

    def test_it_stores_nothing(self, page: Client, waiting: Waiting) -> None:
        approval = waiting()
        events = Event.objects.count()

        page.post(f"/approvals/{approval.pk}/draft/", posted(approval, **self.FIELDS))

        approval.refresh_from_db()
        assert approval.final_arguments_text == ""
        assert Event.objects.count() == events

    def test_htmx_gets_the_piece_that_the_page_has(self, page: Client, waiting: Waiting) -> None:
        approval = waiting(expires_seconds=90_000)
        fields = posted(approval, **self.FIELDS)

        whole = page.post(f"/approvals/{approval.pk}/draft/", fields).content.decode()
        piece = page.post(f"/approvals/{approval.pk}/draft/", fields, headers={"HX-Request": "true"}).content.decode()

        def without_token(text: str) -> str:
            return "\n".join(line for line in text.strip().splitlines() if "csrfmiddlewaretoken" not in line)

        assert "<html" not in piece
        assert without_token(piece) in without_token(whole)

    def test_the_diff_names_was_and_now(self, page: Client, waiting: Waiting) -> None:
        approval = waiting()

        html = page.post(
            f"/approvals/{approval.pk}/draft/", posted(approval, view="diff", **self.FIELDS)
        ).content.decode()

        assert "&quot;amount&quot;: 214.5" in html
        assert "&quot;amount&quot;: 184.5" in html

    def test_restore_brings_back_what_the_agent_proposed(self, page: Client, waiting: Waiting) -> None:
        approval = waiting()

        html = page.post(
            f"/approvals/{approval.pk}/draft/", posted(approval, restore="amount", **self.FIELDS)
        ).content.decode()

        assert 'value="214.50"' in html
        assert "Agent proposed" not in html

    def test_what_can_be_changed_no_more_offers_no_way_back(self, page: Client, waiting: Waiting) -> None:
        approval = waiting()
        draft = page.post(f"/approvals/{approval.pk}/draft/", posted(approval, **self.FIELDS)).content.decode()
        assert 'name="restore"' in draft
        page.post(f"/approvals/{approval.pk}/decide/", posted(approval, **self.FIELDS))

        html = page.get(f"/approvals/{approval.pk}/").content.decode()

        assert "Agent proposed" in html
        assert 'name="restore"' not in html

    def test_it_does_not_hide_that_the_request_has_changed(self, page: Client, waiting: Waiting) -> None:
        approval = waiting()
        fields = posted(approval, **self.FIELDS)
        Approval.objects.filter(pk=approval.pk).update(version=2)

        html = page.post(f"/approvals/{approval.pk}/draft/", fields).content.decode()

        assert "This request changed while you were reading" in html
        assert 'name="version" value="1"' in html


class TestStandings:
    def decided(self, page: Client, approval: Approval, **fields: str) -> None:
        assert page.post(f"/approvals/{approval.pk}/decide/", posted(approval, **fields)).status_code == 302

    def test_a_held_decision_counts_down_and_can_be_undone(self, page: Client, waiting: Waiting) -> None:
        approval = waiting()
        self.decided(page, approval)

        html = html_of(page, approval)

        assert 'data-ends="countdown-ended"' in html
        assert "undo/" in html

    def test_a_success_says_that_it_ran_once(self, page: Client, waiting: Waiting) -> None:
        approval = waiting(hold_seconds=0)
        self.decided(page, approval)
        run_it(approval, ToolResult(data={"refund": "re_1"}))

        html = html_of(page, approval)

        assert "It ran once and succeeded." in html
        assert "re_1" in html
        assert "undo/" not in html

    def test_a_failure_after_approval_is_loud(self, page: Client, waiting: Waiting) -> None:
        approval = waiting(hold_seconds=0)
        self.decided(page, approval)
        run_it(approval, ToolResult(status="fatal_error", reason="tool_failure", message="Stripe: card expired."))

        html = html_of(page, approval)

        assert 'role="alert"' in html
        assert "It was approved, and then it failed." in html
        assert "Stripe: card expired." in html

    def test_a_rejection_shows_who_and_why(self, page: Client, waiting: Waiting) -> None:
        approval = waiting()
        self.decided(page, approval, type="reject", message="Not without a photo.")

        html = html_of(page, approval)

        assert "Dana Whitfield rejected it" in html
        assert "Not without a photo." in html

    def test_an_expired_request_says_that_nothing_ran(self, page: Client, waiting: Waiting) -> None:
        approval = waiting()
        Approval.objects.filter(pk=approval.pk).update(expires_at=timezone.now() - timedelta(seconds=1))

        html = html_of(page, approval)

        assert "No one decided, so it did not run." in html
        assert 'data-act="approve"' not in html

    def test_an_approval_that_could_not_be_used_in_time_is_not_said_to_be_nobody_s(
        self, page: Client, waiting: Waiting
    ) -> None:
        approval = waiting(hold_seconds=0)
        self.decided(page, approval)
        assert within_transaction(decisions.expire, a_moment_ago(approval, "use_by").pk)

        html = html_of(page, approval)

        assert "It was approved, and did not run." in html
        assert "The agent is told that it was approved and could not run in time" in html
        assert "o one decided" not in html

    def test_a_call_that_was_held_until_its_time_ran_out_is_said_to_be_asked_about_again(
        self, page: Client, waiting: Waiting
    ) -> None:
        approval = waiting(hold_seconds=0)
        self.decided(page, approval)
        within_transaction(decisions.expire, a_moment_ago(approval, "use_by").pk)
        within_transaction(executions.set_aside, ToolExecution.objects.get(approval=approval), "held")

        html = html_of(page, approval)

        assert "Its run was held meanwhile, so people are asked again." in html
        assert "The agent is told" not in html

    @pytest.mark.parametrize(
        ("decided", "said"),
        [(False, "ended before anybody decided."), (True, "ended before the decision took effect.")],
    )
    def test_a_withdrawn_request_says_why(self, page: Client, waiting: Waiting, decided: bool, said: str) -> None:
        approval = waiting()
        if decided:
            self.decided(page, approval)
        with ledger.transaction():
            decisions.withdraw(approval.run_id, "The run was cancelled.")

        html = html_of(page, approval)

        assert "Withdrawn." in html
        assert said in html

    def test_a_replaced_request_leads_to_the_new_one(self, page: Client, waiting: Waiting) -> None:
        approval = waiting()
        with ledger.transaction():
            assert decisions.supersede(approval, "The price changed.")
        other = waiting(
            supersedes_id=approval.pk, difference=[{"name": "paid", "was": 214.5, "now": 184.5}], expires_seconds=900
        )

        assert f'href="/approvals/{other.pk}/"' in html_of(page, approval)
        assert "things have changed since" in html_of(page, other)

    def test_a_request_whose_call_was_lost_leads_to_the_one_that_asks_to_try_it_again(
        self, page: Client, waiting: Waiting
    ) -> None:
        approval = waiting()
        self.decided(page, approval)
        approval = a_moment_ago(approval, "runs_at")
        execution = ToolExecution.objects.get(pk=approval.execution_id)
        with ledger.transaction():
            runs.lock(approval.run_id)
            assert decisions.consume(approval)
            executions.begin(execution, approval.final_arguments_text, f"key-{execution.pk}")
            assert executions.lose(execution)
            assert executions.reopen(execution, "Nothing arrived.", "test")
        again = waiting(supersedes_id=approval.pk)
        changed = waiting(supersedes_id=approval.pk, difference=[{"name": "paid", "was": 214.5, "now": 184.5}])

        html = html_of(page, approval)
        assert "It was started, and its outcome was unknown." in html
        assert "Nothing ran." not in html
        assert f'href="/approvals/{again.pk}/"' in html
        assert "A person wants it tried again." in html_of(page, again)
        assert "things have changed since it was approved." in html_of(page, changed)

    def test_a_changed_tool_cannot_be_approved(self, page: Client, waiting: Waiting) -> None:
        approval = waiting()
        Tool.objects.update(version="2" * 64)

        html = html_of(page, approval)

        assert "The tool has changed since this was asked." in html
        assert 'data-act="approve"' not in html

    def test_somebody_reading_is_told_of_a_decision_and_loses_nothing(
        self, page: Client, waiting: Waiting, marco: User
    ) -> None:
        approval = waiting()
        assert "callout" not in page.get(f"/approvals/{approval.pk}/state/?version=1").content.decode()
        other = Client()
        other.force_login(marco)
        self.decided(other, approval)

        news = page.get(f"/approvals/{approval.pk}/state/?version=1").content.decode()

        assert "Marco Reyes has decided this." in news
        assert "<form" not in news


def test_a_badge_says_what_kinds_of_act_its_effects_are(page: Client, waiting: Waiting) -> None:
    effects = [{"icon": icon, "title": "x", "detail": ""} for icon in ("money", "mail", "money", "lock")]
    badges = html_of(page, waiting(effects=effects)).split('class="badges"')[1].split("</div>")[0]
    assert (badges.count("Moves money"), badges.count("Contacts a person"), badges.count("Deletes")) == (1, 1, 0)


class TestOutsideText:
    ATTACK = '</div><hx-partial hx-target="#main"><button hx-post="/x">Approve</button><script>alert(1)</script>\u202e'

    def test_it_is_inert_everywhere_on_the_page(self, page: Client, waiting: Waiting) -> None:
        attack = self.ATTACK
        approval = waiting(
            arguments={**REFUND, "note": attack},
            title=attack,
            sentence=[{"text": attack, "value": True}],
            effects=[{"icon": "mail", "title": attack, "detail": attack}],
            reason=attack,
            run_title=attack,
            explanation=attack,
            button=attack[:60],
            evidence=[{"n": 1, "kind": "message", "title": attack, "body": attack, "trust": "untrusted_content"}],
            difference=[{"name": attack, "was": attack, "now": attack}],
        )
        page.post(f"/approvals/{approval.pk}/draft/", posted(approval, shown=["arg.note"], **{"arg.note": attack}))

        for path in (
            f"/approvals/{approval.pk}/",
            f"/approvals/{approval.pk}/?view=json",
            f"/approvals/{approval.pk}/side/",
            f"/inbox/?id={approval.pk}",
            f"/inbox/peek/{approval.pk}/",
        ):
            html = page.get(path).content.decode()
            assert "<hx-partial" not in html
            assert "<script>" not in html
            assert 'hx-post="/x"' not in html
            assert html.count("\u202e") == html.count('name="arg.note"')

    def test_what_is_hidden_in_it_is_shown_as_codes(self, page: Client, waiting: Waiting) -> None:
        html = html_of(page, waiting(explanation="safe\u202etxt.exe\u200b"))

        assert "safe⟨U+202E⟩txt.exe⟨U+200B⟩" in html


def test_a_secret_argument_is_nowhere_on_the_page(page: Client, waiting: Waiting) -> None:
    approval = waiting(arguments={**REFUND, "note": "hunter2"}, secret_fields=["note"])

    for path in ("", "?view=json", "?view=diff", "side/"):
        assert "hunter2" not in page.get(f"/approvals/{approval.pk}/{path}").content.decode()
    page.post(f"/approvals/{approval.pk}/decide/", posted(approval))
    approval.refresh_from_db()
    assert json.loads(approval.final_arguments_text)["note"] == "hunter2"
