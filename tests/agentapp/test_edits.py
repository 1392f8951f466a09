"""Arguments that a person changed: the whole call, checked like a proposal, and for that call alone."""

import json
import uuid
from typing import Any

import pytest
from pydantic import BaseModel, field_validator

from agentapp import actions
from agentapp.answers import answer
from agentapp.configuration_file import loading
from agentapp.messages import ToolResult
from agentapp.models import Tool
from agentapp.refused import Refused
from agentapp.tools.base import OutcomeUnknown, ToolContext, ToolError, tool
from approvals import entitlement
from approvals.digest import parse
from approvals.models import Approval, Rule
from tests.clerk_tools import effects_of
from tests.conftest import call, calls, says


def test_an_edit_is_the_whole_call_and_nothing_of_the_proposal_is_left_in_it(clerk, offer, dana):
    sent = []

    @tool(effect="compensable")
    def mail(to: str, cc: str = "") -> str:
        """Send a mail."""
        sent.append((to, cc))
        return f"sent to {to}"

    offer(mail)
    Rule.objects.create(name="mails", tool="mail", verdict="ask", risk="medium")
    run = clerk.run(calls(call("a", "mail", to="alice", cc="carol")), says("ok"))
    clerk.decide(clerk.open(run)[0], dana, "edit", arguments_text='{"to": "bob"}')
    assert clerk.drive(run).state == "succeeded"
    assert sent == [("bob", "")]
    assert json.loads(clerk.execution(run, "a").executed_text) == {"to": "bob", "cc": ""}
    text = answer(clerk.execution(run, "a")).text
    assert text.startswith("A person changed the call before it ran")
    assert "bob" in text


@pytest.mark.parametrize(
    ("came", "status", "said"),
    [
        (ToolError("bob's account is closed"), "fatal_error", "bob's account is closed"),
        (ToolError("bob's bank is closed", retryable=True), "retryable_error", "bob's bank is closed"),
        (ToolResult("refused", message="bob has no account", reason="tool_failure"), "refused", "bob has no account"),
        (OutcomeUnknown("It went silent."), "", "It is not known whether this happened"),
    ],
)
def test_of_an_edited_call_that_comes_to_nothing_the_model_is_told_what_ran_in_its_place(
    clerk, offer, dana, came, status, said
):
    @tool(effect="compensable", trust="trusted_system")
    def transfer(account: str, amount: int) -> Any:
        """Transfer money."""
        if isinstance(came, Exception):
            raise came
        return came

    offer(transfer)
    Rule.objects.create(name="transfers", tool="transfer", verdict="ask", risk="medium")
    run = clerk.run(calls(call("a", "transfer", account="ana", amount=500)), says("ok"))
    clerk.decide(clerk.open(run)[0], dana, "edit", arguments_text='{"account": "bob", "amount": 50}')
    clerk.drive(run)
    execution = clerk.execution(run, "a")
    changed, came_of_it = answer(execution).text.split("\n", 1)
    assert execution.result_status == status
    assert changed == (
        'A person changed the call before it ran: account from "ana" to "bob"; amount from 500 to 50. '
        "What you proposed did not run; do not repeat it."
    )
    assert said in came_of_it


@pytest.mark.parametrize("together", [False, True])
def test_an_edit_counts_for_its_own_call_and_for_no_other_of_the_same_id(clerk, dana, together):
    Rule.objects.create(name="pay-medium", tool="pay", verdict="ask", risk="medium")
    one, other = call("a", "pay", account="ana", amount=20), call("a", "pay", account="bob", amount=30)
    run = clerk.run(*([calls(one, other)] if together else [calls(one), calls(other)]), says("ok"))
    clerk.decide(clerk.open(run)[0], dana, "edit", arguments_text='{"account": "ana", "amount": 5, "memo": ""}')
    clerk.drive(run)
    (later,) = clerk.open(run)
    assert later.title == "Pay $30.00 to Bob"
    assert effects_of("pay") == [{"account": "ana", "amount": 5.0}]
    clerk.decide(later, dana)
    assert clerk.drive(run).state == "succeeded"
    assert effects_of("pay") == [{"account": "ana", "amount": 5.0}, {"account": "bob", "amount": 30.0}]


def test_an_edit_that_only_the_types_refuse_is_refused_and_nothing_is_kept_of_it(clerk, offer, dana):
    class Booking(BaseModel):
        nights: int

        @field_validator("nights")
        @classmethod
        def _is_short(cls, nights: int) -> int:
            if nights > 14:
                raise ValueError("two weeks at most")
            return nights

    @tool(effect="compensable", args_schema=Booking)
    def book(nights: int) -> str:
        """Book a room."""
        return "booked"

    offer(book)
    run = clerk.run(calls(call("a", "book", nights=3)))
    (approval,) = clerk.open(run)
    with pytest.raises(actions.Refused, match="two weeks at most") as refused:
        clerk.decide(approval, dana, "edit", arguments_text='{"nights": 15}')
    assert refused.value.code == "invalid_arguments"
    approval.refresh_from_db()
    assert (approval.state, approval.version, approval.decisions.count()) == ("pending", 1, 0)


def test_the_model_is_not_told_a_secret_that_a_person_put_in(clerk, dana):
    Tool.objects.filter(name="pay").update(secret_fields=["memo"])
    Rule.objects.create(name="pay-medium", tool="pay", verdict="ask", risk="medium")
    run = clerk.run(calls(call("p", "pay", account="ana", amount=5)), says("done"))
    arguments = '{"account": "ana", "amount": 6, "memo": "hunter2hunter2"}'
    clerk.decide(clerk.open(run)[0], dana, "edit", arguments_text=arguments)
    assert clerk.drive(run).state == "succeeded"
    assert len(effects_of("pay")) == 1
    text = answer(clerk.execution(run, "p")).text
    assert "hunter2" not in text
    assert "amount from 5 to 6; memo, which is secret" in text


def test_an_edit_that_changes_nothing_is_no_approval_where_the_rule_allows_none(clerk, dana):
    Rule.objects.create(name="only-edits", tool="pay", verdict="ask", allowed_decisions=["edit", "reject"])
    run = clerk.run(calls(call("p", "pay", account="ana", amount=5)), says("done"))
    (approval,) = clerk.open(run)
    with pytest.raises(actions.Refused) as refused:
        clerk.decide(approval, dana, "edit", arguments_text=approval.arguments_text)
    clerk.drive(run)
    assert (refused.value.code, effects_of("pay")) == ("not_allowed", [])


@pytest.mark.parametrize(
    "changed", ['{"notify": true, "dry": 0}', '{"notify": 1, "dry": false}', '{"notify": 1.5, "dry": 0}']
)
def test_a_locked_argument_is_what_it_was_to_the_type(clerk, offer, dana, changed):
    @tool(effect="compensable")
    def stamp(notify: Any, dry: Any = 0) -> str:
        """Stamp an order."""
        return "stamped"

    rows = offer(stamp)
    Tool.objects.filter(pk=rows["stamp"].pk).update(locked_fields=["notify", "dry"])
    [approval] = clerk.open(clerk.run(calls(call("a", "stamp", notify=1)), says("ok")))
    with pytest.raises(Refused) as refused:
        clerk.decide(approval, dana, "edit", arguments_text=changed)
    assert refused.value.code == "locked_field"


def lock_the_address() -> None:
    loading.load("tools:\n  send: {locked_fields: [to]}\n", "user:ada")


def test_an_argument_that_was_locked_after_people_were_asked_is_not_theirs_to_change(client, clerk, dana):
    run = clerk.run(calls(call("s", "send", to="ann")), says("done"))
    [approval] = clerk.open(run)
    client.force_login(dana)
    assert 'name="arg.to"' in client.get(f"/approvals/{approval.pk}/").content.decode()
    lock_the_address()
    assert 'name="arg.to"' not in client.get(f"/approvals/{approval.pk}/").content.decode()
    with pytest.raises(Refused) as refused:
        clerk.decide(approval, dana, "edit", arguments_text='{"to": "mallory"}')
    assert (refused.value.code, refused.value.field) == ("locked_field", "to")
    clerk.decide(approval, dana)
    assert clerk.drive(run).state == "succeeded"
    assert effects_of("send") == [{"to": "ann"}]


def test_a_change_of_what_has_been_locked_since_is_asked_anew_as_the_agent_proposed_it(clerk, dana):
    run = clerk.run(calls(call("s", "send", to="ann")), says("done"))
    [approval] = clerk.open(run)
    clerk.decide(approval, dana, "edit", arguments_text='{"to": "mallory"}')
    lock_the_address()
    clerk.drive(run)
    [again] = clerk.open(run)
    assert (effects_of("send"), parse(again.arguments_text)["to"], again.editor_id) == ([], "ann", None)
    assert Approval.objects.get(pk=approval.pk).state == "superseded"
    clerk.decide(again, dana)
    assert clerk.drive(run).state == "succeeded"
    assert effects_of("send") == [{"to": "ann"}]


def test_a_change_on_an_earlier_card_of_what_has_been_locked_since_does_not_run_either(clerk, dana, marco):
    run = clerk.run(calls(call("s", "send", to="ann")), says("done"))
    clerk.decide(clerk.open(run)[0], dana, "edit", arguments_text='{"to": "mallory"}')
    Rule.objects.create(name="two", tool="send", verdict="ask", approvals_needed=2, hold_seconds=0)
    clerk.drive(run)
    [again] = clerk.open(run)
    assert (parse(again.arguments_text)["to"], again.editor_id) == ("mallory", dana.pk)
    for who in (dana, marco):
        clerk.decide(again, who)
    lock_the_address()
    clerk.drive(run)
    [third] = clerk.open(run)
    assert (effects_of("send"), parse(third.arguments_text)["to"], third.editor_id) == ([], "ann", None)


def test_a_call_that_people_want_tried_again_is_the_same_act_also_where_an_argument_was_locked_since(
    clerk, offer, dana
):
    wired = []

    @tool(effect="compensable", idempotency="key", max_attempts=1)
    def wire(to: str, context: ToolContext) -> str:
        """Wire money."""
        wired.append((to, context.idempotency_key))
        if len(wired) == 1:
            raise OutcomeUnknown("no answer")
        return "wired"

    offer(wire)
    run = clerk.run(calls(call("s", "wire", to="ann")), says("done"))
    clerk.decide(clerk.open(run)[0], dana, "edit", arguments_text='{"to": "bob"}')
    run = clerk.drive(run)
    loading.load("tools:\n  wire: {locked_fields: [to]}\n", "user:ada")
    actions.resolve_outcome(clerk.execution(run, "s").pk, "retry", "The bank cannot tell.", dana)
    clerk.drive(run)
    [again] = clerk.open(run)
    assert (parse(again.arguments_text)["to"], again.editor_id) == ("bob", dana.pk)
    clerk.decide(again, dana)
    assert clerk.drive(run).state == "succeeded"
    assert wired == [wired[0]] * 2


def test_what_others_changed_before_it_was_locked_does_not_keep_one_from_changing_the_rest(clerk, dana, marco):
    run = clerk.run(calls(call("p", "pay", account="ana", amount=5, memo="x")), says("done"))
    clerk.decide(clerk.open(run)[0], dana, "edit", arguments_text='{"account": "ana", "amount": 4, "memo": "x"}')
    Rule.objects.create(name="two", tool="pay", verdict="ask", approvals_needed=2, hold_seconds=0)
    clerk.drive(run)
    [again] = clerk.open(run)
    loading.load("tools:\n  pay: {locked_fields: [amount]}\n", "user:ada")
    with pytest.raises(Refused):
        clerk.decide(again, marco, "edit", arguments_text='{"account": "ana", "amount": 3, "memo": "y"}')
    clerk.decide(again, marco, "edit", arguments_text='{"account": "ana", "amount": 4, "memo": "y"}')
    [decision] = Approval.objects.get(pk=again.pk).decisions.filter(user=marco)
    assert parse(decision.arguments_text) == {"account": "ana", "amount": 4, "memo": "y"}


def test_whose_change_was_left_out_because_it_was_locked_since_had_no_hand_in_what_is_asked(clerk, dana, marco):
    run = clerk.run(calls(call("s", "send", to="ann")), says("done"))
    clerk.decide(clerk.open(run)[0], dana, "edit", arguments_text='{"to": "mallory"}')
    Rule.objects.create(name="two", tool="send", verdict="ask", approvals_needed=2, hold_seconds=0)
    clerk.drive(run)
    [again] = clerk.open(run)
    for who in (dana, marco):
        clerk.decide(again, who)
    lock_the_address()
    clerk.drive(run)
    [third] = clerk.open(run)
    assert (parse(third.arguments_text)["to"], entitlement.in_whole(third)) == ("ann", set())


def test_what_stands_for_something_hidden_is_never_stored_as_a_value(clerk, dana):
    key = "sk-proj-abcdEFGH1234567890abcdXYZ"
    run = clerk.run(calls(call("p", "pay", account="ana", amount=5, memo=f"use {key} to pay")), says("paid"))
    [approval] = clerk.open(run)
    edited = '{"account": "ana", "amount": 6, "memo": "use \u2022\u2022\u2022\u2022\u2022\u2022 to pay today"}'
    with pytest.raises(Refused, match="still has a masked part"):
        clerk.decide(approval, dana, "edit", arguments_text=edited)
    approval.refresh_from_db()
    assert (approval.state, approval.final_arguments_text) == ("pending", "")


def test_a_form_takes_no_masked_part_and_keeps_a_field_that_came_back_as_it_was_shown(client, clerk, dana):
    key = "sk-proj-abcdEFGH1234567890abcdXYZ"
    run = clerk.run(calls(call("p", "pay", account="ana", amount=5, memo=f"use {key} to pay")), says("paid"))
    [approval] = clerk.open(run)
    client.force_login(dana)
    page = client.get(f"/approvals/{approval.pk}/").content.decode()
    assert key not in page
    mask = "\u2022" * 6
    assert f'value="use {mask} to pay"' in page
    form = {
        "decision_id": str(uuid.uuid4()), "type": "confirm", "version": approval.version,
        "action_digest": approval.action_digest, "shown": ["arg.account", "arg.amount", "arg.memo"],
        "arg.account": "ana", "arg.amount": "6",
    }  # fmt: skip
    refused = client.post(f"/approvals/{approval.pk}/decide/", {**form, "arg.memo": f"use {mask} to pay today"})
    assert refused.status_code == 422
    assert "still has a masked part" in refused.content.decode()
    assert key not in refused.content.decode()
    assert (
        client.post(f"/approvals/{approval.pk}/decide/", {**form, "arg.memo": f"use {mask} to pay"}).status_code == 302
    )
    approval.refresh_from_db()
    assert parse(approval.final_arguments_text) == {"account": "ana", "amount": 6, "memo": f"use {key} to pay"}


def test_an_edit_sent_again_is_the_first_also_once_tool_and_rules_are_others(clerk, dana):
    run = clerk.run(calls(call("a", "pay", account="ann", amount=5)), says("done"))
    [approval] = clerk.open(run)
    sent = {"type": "edit", "arguments_text": '{"amount": 4, "account": "ann"}', "id": uuid.uuid4()}
    first = clerk.decide(approval, dana, **sent)
    Tool.objects.filter(name="pay").update(version="9" * 64, input_schema={"type": "object"})
    Rule.objects.create(name="no", tool="pay", verdict="deny", active=True)
    again = clerk.decide(approval, dana, **sent)
    assert (first.repeated, again.repeated, again.decision) == (False, True, first.decision)
    for other in ('{"account":"ann","amount":3}', '{"account":"ann","amount":4,"tip":1}', '{"account":"ann"', "[]"):
        with pytest.raises(Refused) as refused:
            clerk.decide(approval, dana, **{**sent, "arguments_text": other})
        assert refused.value.code == "decision_id_reused"


def test_for_a_change_that_cannot_count_no_tool_looks_anything_up(clerk, offer, dana, marco, otto):
    looked = []

    @tool(effect="compensable", preview=lambda to: looked.append(to) or "")
    def mail(to: str) -> str:
        """Send a mail."""
        return f"sent to {to}"

    offer(mail)
    Rule.objects.create(name="mails", tool="mail", verdict="ask", risk="medium")
    run = clerk.run(calls(call("a", "mail", to="alice")), says("ok"))
    (approval,) = clerk.open(run)
    looked.clear()

    def refused(who, approval) -> str:
        with pytest.raises(Refused) as found:
            clerk.decide(approval, who, "edit", arguments_text='{"to": "bob"}')
        return found.value.code

    assert refused(otto, approval) == "forbidden"
    clerk.decide(approval, dana)
    assert refused(marco, approval) == "already_decided"
    assert looked == []
