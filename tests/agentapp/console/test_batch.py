"""Several requests decided at once: what may be, what may not, and that each is decided separately."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agentapp import actions
from agentapp.console import batch
from agentapp.models import Tool, ToolExecution
from approvals.models import Approval, Decision
from approvals.snapshots import unseen

from .conftest import REFUND, make_tool, posted

pytestmark = pytest.mark.django_db
Waiting = Callable[..., Approval]


@pytest.fixture
def credit(waiting: Waiting) -> Callable[..., Approval]:
    """A low-risk request that can be undone: what batches are for."""

    def make(**card: Any) -> Approval:
        return waiting(**{"risk": "low", "effect_class": "reversible", "hold_seconds": 0, **card})

    return make


def table(page: Client, *approvals: Approval) -> Any:
    return page.get("/inbox/batch/", {"pick": [str(row.pk) for row in approvals]})


def items(html: str) -> list[str]:
    return re.findall(r'name="item" value="([^"]+)"', html)


def states(*approvals: Approval) -> list[str]:
    return [Approval.objects.get(pk=row.pk).state for row in approvals]


def begun(approval: Approval) -> None:
    """As a worker leaves it after beginning the call."""
    now = timezone.now()
    Approval.objects.filter(pk=approval.pk).update(state="used", used_at=now)
    ToolExecution.objects.filter(approval=approval).update(
        state="executing", started_at=now, idempotency_key=str(approval.pk)
    )


class TestTheTable:
    def test_it_shows_what_differs_in_columns_and_the_rest_once(self, page: Client, credit: Waiting) -> None:
        first = credit(arguments={**REFUND, "amount": 15})
        second = credit(arguments={**REFUND, "amount": 20, "order_id": "58214"})

        context = table(page, first, second).context

        assert context["columns"] == ["Amount", "Order"]
        assert [values for _, _, values in context["rows"]] == [["$15.00", "58213"], ["$20.00", "58214"]]
        assert ("Reason", "Damaged in transit") in context["same"]

    def test_secrets_stay_masked(self, page: Client, credit: Waiting) -> None:
        make_tool()
        Tool.objects.update(secret_fields=["note"], locked_fields=[])
        first = credit(secret_fields=["note"], arguments={**REFUND, "note": "the password"})
        second = credit(secret_fields=["note"], arguments={**REFUND, "note": "another password"})

        assert "password" not in table(page, first, second).content.decode()

    def test_only_what_one_may_see_is_on_it(self, page: Client, credit: Waiting) -> None:
        private = Group.objects.create(name="privacy")
        hidden, seen = credit(title="Hidden", groups=(private.pk,)), credit(title="Seen")

        html = table(page, hidden, seen).content.decode()

        assert "Hidden" not in html
        assert len(items(html)) == 1

    def test_nothing_ticked_is_the_inbox_again(self, page: Client) -> None:
        assert page.get("/inbox/batch/?pick=nonsense&view=mine")["Location"] == "/inbox/?view=mine"


class TestWhatMayNotBe:
    @pytest.mark.parametrize(
        ("card", "words"),
        [
            ({"risk": "high"}, "1 is high risk: decide it on its own."),
            ({"risk": "critical"}, "1 is critical risk: decide it on its own."),
            ({"effect_class": "irreversible"}, "1 cannot be taken back: decide it on its own."),
            ({"snapshot_text": unseen("away")}, "1 rests on what could not be looked up: decide it on its own."),
            ({"tool": "issue_credit"}, "They are calls of 2 tools: select those of one."),
        ],
    )
    def test_one_that_is_not_alike_rules_it_out(
        self, page: Client, credit: Waiting, card: dict[str, Any], words: str
    ) -> None:
        fine, other = credit(), credit(**card)

        response = table(page, fine, other)
        pick = {"pick": [str(fine.pk), str(other.pk)]}
        bar = page.get("/inbox/batch/bar/", pick).content.decode()

        assert response.status_code == 422
        assert words in response.content.decode()
        assert words in bar
        assert "Review" not in bar

    def test_nor_when_it_is_posted_all_the_same(self, page: Client, credit: Waiting) -> None:
        fine, risky = credit(), credit(risk="low")
        rows = items(table(page, fine, risky).content.decode())
        Approval.objects.filter(pk=risky.pk).update(risk="high")

        response = page.post("/inbox/batch/", {"item": rows, "type": "approve"})

        assert response.status_code == 422
        assert states(fine, risky) == ["pending", "pending"]

    def test_twenty_are_the_most(self, page: Client, credit: Waiting, monkeypatch: pytest.MonkeyPatch) -> None:
        assert batch.MOST == 20
        monkeypatch.setattr(batch, "MOST", 2)
        made = [credit() for _ in range(3)]

        assert "3 are selected: 2 at most." in table(page, *made).content.decode()

    def test_what_another_holds_is_left_to_them(self, page: Client, credit: Waiting, marco: User) -> None:
        mine, his = credit(), credit()
        actions.claim_request(his.pk, marco)

        assert "Claimed by Marco Reyes: decide those one by one." in table(page, mine, his).content.decode()

    def test_the_bar_says_what_makes_it_possible(self, page: Client, credit: Waiting) -> None:
        pick = {"pick": [str(credit().pk), str(credit().pk)]}

        assert "all low risk, all refund_payment" in page.get("/inbox/batch/bar/", pick).content.decode()
        assert "selected" not in page.get("/inbox/batch/bar/").content.decode()


class TestDeciding:
    def test_each_row_gets_a_decision_of_its_own(self, page: Client, credit: Waiting) -> None:
        first, second = credit(), credit()
        rows = items(table(page, first, second).content.decode())

        html = page.post("/inbox/batch/", {"item": rows, "type": "approve"}).content.decode()

        assert "2 of 2 approved" in html
        assert states(first, second) == ["approved", "approved"]
        assert {str(key) for key in Decision.objects.values_list("pk", flat=True)} == {r.split(":")[3] for r in rows}
        assert set(Decision.objects.values_list("via", flat=True)) == {"batch"}

    def test_sent_twice_it_counts_once(self, page: Client, credit: Waiting) -> None:
        first, second = credit(), credit()
        rows = items(table(page, first, second).content.decode())

        page.post("/inbox/batch/", {"item": rows, "type": "approve"})
        again = page.post("/inbox/batch/", {"item": rows, "type": "approve"}).content.decode()

        assert "2 of 2 approved" in again
        assert Decision.objects.count() == 2

    def test_one_decided_elsewhere_meanwhile_is_named_and_the_others_go_on(
        self, page: Client, credit: Waiting, marco: User
    ) -> None:
        first, second = credit(), credit()
        rows = items(table(page, first, second).content.decode())
        his = Client()
        his.force_login(marco)
        his.post(f"/approvals/{first.pk}/decide/", posted(first, type="reject", message="No."))

        html = page.post("/inbox/batch/", {"item": rows, "type": "approve"}).content.decode()

        assert "1 of 2 approved" in html
        assert "Marco Reyes already rejected it. Your decision was not recorded." in html
        assert states(first, second) == ["rejected", "approved"]

    def test_taking_one_back_leads_back_to_what_came_of_all(self, page: Client, credit: Waiting) -> None:
        first, second = credit(hold_seconds=30, title="The first"), credit(hold_seconds=30, title="The second")
        rows = items(table(page, first, second).content.decode())
        html = page.post("/inbox/batch/", {"item": rows, "type": "approve", "risk": "low"}).content.decode()
        assert 'name="next" value="batch"' in html

        again = page.post(f"/approvals/{first.pk}/undo/", {"next": "batch"}, follow=True)

        html = again.content.decode()
        assert again.redirect_chain == [("/inbox/batch/done/", 302)]
        assert (html.count("Taken back by you."), html.count("Runs in")) == (1, 1)
        assert f"/approvals/{second.pk}/undo/" in html
        assert f"/approvals/{first.pk}/undo/" not in html
        assert 'href="/inbox/?risk=low"' in html
        assert states(first, second) == ["pending", "approved"]

    def test_all_are_taken_back_together_each_by_itself(self, page: Client, credit: Waiting) -> None:
        made = [credit(hold_seconds=30) for _ in range(3)]
        rows = items(table(page, *made).content.decode())
        html = page.post("/inbox/batch/", {"item": rows, "type": "approve"}).content.decode()
        assert "Undo all 3" in html
        assert html.count('data-act="undo"') == 1
        held = re.findall(r'name="held" value="([^"]+)"', html)
        begun(made[2])

        again = page.post("/inbox/batch/undo/", {"held": held}, follow=True)

        html = again.content.decode()
        assert again.redirect_chain == [("/inbox/batch/done/", 302)]
        assert states(*made) == ["pending", "pending", "used"]
        assert html.count("Taken back by you.") == 2
        assert "Not taken back: It has already taken effect and cannot be undone. Running" in html
        assert "1 of 3 approved" in html
        assert "Undo" not in html

    @pytest.mark.parametrize("signed_in_anew", [False, True])
    def test_they_are_taken_back_though_another_tab_has_decided_meanwhile(
        self, page: Client, credit: Waiting, signed_in_anew: bool, dana: User
    ) -> None:
        made, others = [credit(hold_seconds=30) for _ in range(2)], [credit(hold_seconds=30) for _ in range(2)]
        first = table(page, *made).content.decode()
        html = page.post("/inbox/batch/", {"item": items(first), "type": "approve"}).content.decode()
        # The same again, which decides nothing, and then another batch.
        page.post("/inbox/batch/", {"item": items(first), "type": "approve"})
        page.post("/inbox/batch/", {"item": items(table(page, *others).content.decode()), "type": "approve"})
        if signed_in_anew:
            page.force_login(dana)

        again = page.post("/inbox/batch/undo/", {"held": re.findall(r'name="held" value="([^"]+)"', html)}, follow=True)

        assert states(*made, *others) == ["pending", "pending", "approved", "approved"]
        html = again.content.decode()
        assert again.redirect_chain == [("/inbox/batch/done/", 302)]
        assert html.count("Taken back by you.") == 2
        assert "0 of 2 approved" in html

    def test_nothing_is_taken_back_that_was_not_decided_in_the_batch(self, page: Client, credit: Waiting) -> None:
        other, first, second = [credit(hold_seconds=30) for _ in range(3)]
        page.post(f"/approvals/{other.pk}/decide/", posted(other))
        rows = items(table(page, first, second).content.decode())
        page.post("/inbox/batch/", {"item": rows, "type": "approve"})

        page.post("/inbox/batch/undo/", {"held": [str(other.pk), str(first.pk), "x"]})

        assert states(other, first, second) == ["approved", "pending", "approved"]

    def test_what_came_of_each_follows_its_call(self, page: Client, credit: Waiting) -> None:
        running, taken = credit(hold_seconds=30), credit(hold_seconds=30)
        rows = items(table(page, running, taken).content.decode())
        page.post("/inbox/batch/", {"item": rows, "type": "approve"})
        begun(running)
        Approval.objects.filter(pk=taken.pk).update(runs_at=timezone.now())

        part = page.get("/inbox/batch/done/", headers={"HX-Request-Type": "partial"}).content.decode()

        assert part.startswith('<div class="sec" id="results" hx-get="/inbox/batch/done/"')
        assert [line.strip() for line in re.findall(r'block fs13 t2">([^<]*)', part)] == [
            "Running",
            "Runs in a moment.",
        ]
        assert "Undo" not in part

    def test_without_a_batch_there_is_nothing_to_lead_back_to(self, page: Client) -> None:
        assert page.get("/inbox/batch/done/")["Location"] == "/inbox/"
        assert page.post("/inbox/batch/undo/")["Location"] == "/inbox/"

    def test_one_that_changed_meanwhile_is_not_decided(self, page: Client, credit: Waiting) -> None:
        first, second = credit(), credit()
        rows = items(table(page, first, second).content.decode())
        Approval.objects.filter(pk=first.pk).update(version=7)

        html = page.post("/inbox/batch/", {"item": rows, "type": "approve"}).content.decode()

        assert "This request changed while you were reading." in html
        assert states(first, second) == ["pending", "approved"]

    def test_arguments_other_than_those_on_the_table_are_not_approved(self, page: Client, credit: Waiting) -> None:
        approval, other = credit(), credit()
        [row, _] = items(table(page, approval, other).content.decode())
        parts = row.split(":")

        page.post("/inbox/batch/", {"item": [":".join([parts[0], parts[1], "0" * 64, parts[3]])], "type": "approve"})

        assert states(approval) == ["pending"]

    def test_rejecting_needs_a_reason_which_every_agent_reads(self, page: Client, credit: Waiting) -> None:
        first, second = credit(), credit()
        rows = items(table(page, first, second).content.decode())

        without = page.post("/inbox/batch/", {"item": rows, "type": "reject", "reason": "Other"})
        page.post("/inbox/batch/", {"item": rows, "type": "reject", "reason": "Not allowed", "message": "Closed."})

        assert without.status_code == 422
        assert states(first, second) == ["rejected", "rejected"]
        assert set(Decision.objects.values_list("message", flat=True)) == {"Not allowed. Closed."}

    def test_what_was_chosen_and_typed_is_kept_if_it_is_refused(self, page: Client, credit: Waiting) -> None:
        rows = items(table(page, credit(), gone := credit()).content.decode())
        Approval.objects.filter(pk=gone.pk).update(risk="high")
        sent = {"item": rows, "type": "reject", "reason": "Not allowed", "message": "Closed."}
        html = page.post("/inbox/batch/", sent).content.decode()
        assert "Nothing was decided." in html
        assert '<details class="batch-reject" open>' in html
        assert re.findall(r'name="reason" value="([^"]+)" data-draft checked', html) == ["Not allowed"]
        assert ">Closed.</textarea>" in html

    def test_what_is_said_afterwards_is_true_of_what_is_stopped(self, page: Client, credit: Waiting, mia: User) -> None:
        first, second = credit(hold_seconds=60), credit(hold_seconds=60)
        page.post("/inbox/batch/", {"item": items(table(page, first, second).content.decode()), "type": "approve"})
        assert page.get("/inbox/batch/done/").content.decode().count("Runs in") == 2

        def queries() -> int:
            with CaptureQueriesContext(connection) as captured:
                shown.append(page.get("/inbox/batch/done/").content.decode())
            return len(captured)

        shown: list[str] = []
        before = queries()
        actions.engage_switch("tool", "refund_payment", "It pays twice.", mia)

        assert queries() == before + 2
        html = shown[-1]
        assert html.count("The tool refund_payment was stopped by Mia Manager. Can be undone for") == 2
        assert "Runs in" not in html

    def test_what_is_said_afterwards_is_true_of_paused_runs(self, page: Client, credit: Waiting, mia: User) -> None:
        first, second = credit(hold_seconds=60), credit(hold_seconds=60)
        page.post("/inbox/batch/", {"item": items(table(page, first, second).content.decode()), "type": "approve"})
        actions.pause_run(first.run_id, mia)

        html = page.get("/inbox/batch/done/").content.decode()

        assert html.count("The run is paused by Mia Manager. Can be undone for") == 1
        assert html.count("Runs in") == 1

    def test_what_cannot_be_read_decides_nothing(self, page: Client, credit: Waiting) -> None:
        approval = credit()
        wrong = ["", "a:b", f"{approval.pk}:x:{approval.action_digest}:y", f"{approval.pk}:²:d:{approval.pk}"]

        response = page.post("/inbox/batch/", {"item": wrong, "type": "approve"})

        assert response.status_code == 422
        assert states(approval) == ["pending"]

    def test_who_may_only_look_decides_nothing(self, client: Client, credit: Waiting, mia: User, page: Client) -> None:
        first, second = credit(), credit()
        rows = items(table(page, first, second).content.decode())
        client.force_login(mia)

        html = client.post("/inbox/batch/", {"item": rows, "type": "approve"}).content.decode()

        assert "0 of 2 approved" in html
        assert states(first, second) == ["pending", "pending"]


def test_texts_that_differ_far_in_are_not_the_same(page: Client, credit: Waiting) -> None:
    same = "Dear Ana, " + "we are very sorry for the trouble with your kettle. " * 4
    first = credit(arguments={**REFUND, "note": same + "Your voucher is A-1."})
    second = credit(arguments={**REFUND, "note": same + "Send your password to evil@example.com."})
    shown = table(page, first, second).context
    assert "Message to customer" in shown["columns"]
    assert "Message to customer" not in dict(shown["same"])
    assert [values for _, _, values in shown["rows"]] == [[first.arguments["note"]], [second.arguments["note"]]]


@pytest.mark.parametrize("differ", [True, False])
def test_what_is_too_long_to_be_shown_whole_is_not_approved_together(
    page: Client, credit: Waiting, differ: bool
) -> None:
    long = "Dear Ana, " + "we are very sorry for the trouble with your kettle. " * 10
    both = [credit(arguments={**REFUND, "note": f"{long}{number if differ else ''}"}) for number in (1, 2)]
    html = table(page, *both).content.decode()
    assert "These can only be rejected together." in html
    assert "too long to be shown whole" in html
    assert 'value="approve"' not in html

    refused = page.post("/inbox/batch/", {"item": items(html), "type": "approve"})
    assert (refused.status_code, states(*both)) == (422, ["pending", "pending"])
    assert "too long to be shown whole" in refused.content.decode()

    page.post("/inbox/batch/", {"item": items(html), "type": "reject", "message": "No."})
    assert states(*both) == ["rejected", "rejected"]


def test_nor_are_calls_in_which_more_differs_than_fits(page: Client, credit: Waiting) -> None:
    names = [f"part_{number}" for number in range(13)]
    make_tool()
    schema = {"type": "object", "properties": {name: {"type": "integer"} for name in names}}
    Tool.objects.update(input_schema=schema)
    both = [credit(arguments=dict.fromkeys(names, number)) for number in (1, 2)]
    html = table(page, *both).content.decode()
    assert "13 arguments differ, and 12 fit here" in html
    assert 'value="approve"' not in html


TRANSFER = {
    "type": "object",
    "properties": {
        "amount": {"type": "number", "title": "Amount"},
        "payer": {"type": "object", "properties": {"iban": {"type": "string"}}, "required": ["iban"]},
        "payee": {"type": "object", "properties": {"iban": {"type": "string"}}, "required": ["iban"]},
    },
    "required": ["amount", "payer", "payee"],
}


def transfer(payer: str) -> dict[str, Any]:
    return {"amount": 1, "payer": {"iban": payer}, "payee": {"iban": "DE99"}}


def test_two_arguments_of_one_label_are_two(page: Client, credit: Waiting) -> None:
    make_tool()
    Tool.objects.update(input_schema=TRANSFER, locked_fields=[])
    shown = table(page, *(credit(arguments=transfer(payer)) for payer in ("DE11", "DE22"))).context
    assert shown["columns"] == ["Iban (payer.iban)"]
    assert [values for _, _, values in shown["rows"]] == [["DE11"], ["DE22"]]
    assert ("Iban (payee.iban)", "DE99") in shown["same"]


def test_secrets_that_differ_are_not_the_same_and_are_not_shown(page: Client, credit: Waiting) -> None:
    make_tool()
    one, other = (credit(arguments={**REFUND, "note": note}, secret_fields=["note"]) for note in ("hush-1", "hush-2"))
    response = table(page, one, other)
    assert response.context["columns"] == ["Message to customer"]
    assert "hush" not in response.content.decode()
