"""The risk people are told of, and what rules say of values from outside, in driven runs."""

from typing import Any

import pytest
from django.utils import timezone

from agentapp.models import Tool, ToolExecution
from agentapp.refused import Refused
from agentapp.tools.base import tool
from agentapp.weighing import Before, facts_of
from approvals import risk
from approvals.cards import Card, view_digest
from approvals.models import Approval, Event, Rule
from tests import clerk_tools
from tests.agentapp.customers_at_work import access_to, confirm, customer_rule
from tests.conftest import Clerk, call, calls, says

READ, PAY = call("r", "read_mail"), call("p", "pay", account="ana", amount=1000)


def asked(clerk: Clerk, *replies: Any, **more: Any) -> Approval:
    [approval] = clerk.open(clerk.run(*replies, **more))
    return approval


def origins(approval: Approval) -> dict[str, str]:
    return {row["path"]: row["origin"] for row in approval.provenance}


def test_a_value_from_outside_raises_the_risk_and_names_its_source(clerk: Clerk) -> None:
    Rule.objects.create(name="payments", tool="pay", verdict="ask", risk="low")
    approval = asked(clerk, calls(READ), calls(PAY))
    [row] = [row for row in approval.provenance if row["origin"] == "outside"]
    assert (row["path"], row["source"], row["step"], row["call"]) == ("amount", "read_mail", 1, "r")
    assert approval.risk == "high"
    assert {factor["name"] for factor in approval.risk_factors} >= {"effect_class", "outside"}
    assert asked(clerk, calls(READ), calls(PAY), input="Pay ana 1000").risk == "low"


def test_look_alike_letters_raise_the_risk_of_what_cannot_be_taken_back(clerk: Clerk) -> None:
    Rule.objects.create(name="payments", tool="pay", verdict="ask", risk="low")
    approval = asked(clerk, calls(call("p", "pay", account="аna", amount=1000)), input="Pay аna 1000")
    assert approval.risk == "high"
    assert "disguised" in {factor["name"] for factor in approval.risk_factors}


def test_factors_never_lower_what_a_rule_says(clerk: Clerk) -> None:
    Rule.objects.create(name="payments", tool="pay", verdict="ask", risk="critical")
    assert asked(clerk, calls(PAY), input="Pay ana 1000").risk == "critical"


def test_a_result_of_the_calls_own_step_was_not_read_before_it(clerk: Clerk) -> None:
    approval = asked(clerk, calls(READ, PAY))
    assert clerk_tools.effects_of("pay") == []
    assert origins(approval)["amount"] == "model"


def test_a_rule_denies_what_comes_from_outside(clerk: Clerk) -> None:
    Rule.objects.create(name="no", tool="pay", verdict="deny", condition='provenance.amount == "outside"')
    run = clerk.run(calls(READ), calls(PAY), says("done"))
    execution = clerk.execution(run, "p")
    assert (execution.reason, execution.ruling["values"]) == (
        "policy_denied",
        [{"name": "provenance.amount", "value": "outside"}],
    )
    assert clerk.run(calls(READ), calls(PAY), input="Pay ana 1000").waiting_for == "approval"


def test_what_a_person_changes_is_theirs_to_the_rules_too(clerk: Clerk, dana: Any) -> None:
    Rule.objects.create(name="ours", tool="pay", verdict="deny", condition='provenance.memo == "model"')
    Rule.objects.create(name="payments", tool="pay", verdict="ask", risk="low")
    approval = asked(clerk, calls(PAY), says("done"), input="Pay ana 1000")
    clerk.decide(approval, dana, "edit", arguments_text='{"account":"ana","amount":1000,"memo":"As agreed on Monday"}')
    run = clerk.drive(ToolExecution.objects.get(call_id="p").run)
    execution = clerk.execution(run, "p")
    assert (execution.state, execution.reason, execution.message, run.answer) == ("finished", "", "", "done")
    assert len(clerk_tools.effects_of("pay")) == 1


def test_no_customer_alone_allows_what_an_outsider_put_into_a_call(clerk: Clerk, dana: Any) -> None:
    customer_rule()
    access = access_to(clerk)
    replies = (calls(READ), calls(PAY), says("done"))
    approval = asked(clerk, *replies, conversation="ticket-7", customer="Ana")
    assert (approval.kind, approval.risk) == ("confirmation", "high")
    confirm(access, approval)
    run = clerk.drive(ToolExecution.objects.get(call_id="p").run)
    assert (run.state, clerk_tools.effects_of("pay")) == ("waiting", [])
    [second] = clerk.open(run)
    assert (second.kind, second.risk) == ("authorization", "high")
    clerk.decide(second, dana)
    assert clerk.drive(run).answer == "done"
    assert len(clerk_tools.effects_of("pay")) == 1


@pytest.mark.parametrize(("account", "people"), [("ana", False), ('{"to": "eve"}', True)])
def test_no_customer_alone_allows_what_is_not_what_it_looks_like(
    clerk: Clerk, monkeypatch: pytest.MonkeyPatch, account: str, people: bool
) -> None:
    monkeypatch.setattr(risk, "OPENS", 0)
    monkeypatch.setattr(risk, "CLOSES", 24)
    customer_rule()
    access = access_to(clerk)
    wanted = calls(call("p", "pay", account=account, amount=20))
    said = f"Pay {account} 20"
    approval = asked(clerk, wanted, says("done"), input=said, conversation="ticket-7", customer="Ana")
    assert approval.kind == "confirmation"
    confirm(access, approval)
    run = clerk.drive(ToolExecution.objects.get(call_id="p").run)
    assert [row.kind for row in clerk.open(run)] == (["authorization"] if people else [])
    assert bool(clerk_tools.effects_of("pay")) != people


KNOWN, NEW = "NL91ABNA0417164300", "DE89370400440532013000"


@pytest.fixture
def sent(clerk: Clerk, offer: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What `wire` has sent: ten times about 100 to one account, before a rule asked about it. It is always night."""
    monkeypatch.setattr(risk, "OPENS", 24)
    sent: list[Any] = []

    @tool(effect="reversible", repeatable=True)
    def wire(iban: str, amount: float) -> str:
        """Send money."""
        sent.append((iban, amount))
        return "sent"

    offer(wire)
    rule = Rule.objects.create(name="wires", tool="wire", verdict="allow")
    for n in range(10):
        clerk.run(calls(call("w", "wire", iban=KNOWN, amount=100 + n)), says("done"))
    rule.delete()
    sent.clear()
    return sent


def test_what_a_person_changes_is_weighed_anew(clerk: Clerk, sent: list[Any], dana: Any, marco: Any) -> None:
    """Otherwise changing a call would give it another's risk, and one person could approve alone what needs two."""
    run = clerk.run(calls(call("w", "wire", iban=KNOWN, amount=105)), says("done"))
    [approval] = clerk.open(run)
    assert approval.risk == "low"
    clerk.decide(approval, dana, "edit", arguments_text=f'{{"iban": "{NEW}", "amount": 1000000}}')
    run = clerk.drive(run)
    assert (run.waiting_for, sent) == ("approval", [])
    [again] = clerk.open(run)
    assert (again.risk, again.editor, again.arguments) == ("high", dana, {"amount": 1_000_000, "iban": NEW})
    why = Event.objects.get(type="approval.superseded", approval_id=approval.pk).data["reason"]
    assert why == "Since it was changed, its risk is high and no longer low."
    with pytest.raises(Refused, match="You changed these arguments"):
        clerk.decide(again, dana)
    clerk.decide(again, marco)
    assert (clerk.drive(run).state, sent) == ("succeeded", [(NEW, 1_000_000)])


def test_a_change_that_raises_no_risk_is_asked_about_once(clerk: Clerk, sent: list[Any], dana: Any) -> None:
    run = clerk.run(calls(call("w", "wire", iban=KNOWN, amount=105)), says("done"))
    clerk.decide(clerk.open(run)[0], dana, "edit", arguments_text=f'{{"iban": "{KNOWN}", "amount": 104}}')
    assert (clerk.drive(run).state, sent) == ("succeeded", [(KNOWN, 104)])


def test_a_call_is_compared_with_those_of_its_tool_before(clerk: Clerk, sent: list[Any]) -> None:
    approval = asked(clerk, calls(call("w", "wire", iban="DE89370400440532013000", amount=500)))
    assert {"new_recipient", "amount"} <= {factor["name"] for factor in approval.risk_factors}
    approval = asked(clerk, calls(call("w", "wire", iban="NL91 ABNA 0417 1643 00", amount=105)))
    assert {"new_recipient", "amount"} & {factor["name"] for factor in approval.risk_factors} == set()


def test_what_people_rejected_of_this_agent_counts(clerk: Clerk, dana: Any) -> None:
    for n in range(5):
        approval = asked(clerk, calls(call("p", "pay", account="ana", amount=100 + n)), says("done"))
        clerk.decide(approval, dana, "reject", message="No.")
        clerk.drive(ToolExecution.objects.get(approval=approval).run)
    approval = asked(clerk, calls(PAY))
    assert "rejections" in {factor["name"] for factor in approval.risk_factors}


@pytest.mark.parametrize("name", ["provenance", "risk_factors"])
def test_what_is_told_of_a_call_is_part_of_what_was_shown(name: str) -> None:
    parts: dict[str, Any] = {
        "run_id": None, "execution_id": None, "agent": "a", "tool": "t", "tool_version": "1", "effect_class": "read",
        "arguments_text": "{}", "title": "", "sentence": [], "effects": [], "reason": "", "expires_seconds": 1,
        "hold_seconds": 0,
    }  # fmt: skip
    assert view_digest(Card(**parts)) != view_digest(Card(**parts, **{name: [{"path": "iban"}]}))


def facts(arguments: dict[str, Any], **properties: Any) -> tuple[float | None, list[str]]:
    tool_of = Tool(name="x", input_schema={"type": "object", "properties": properties}, effect_class="irreversible")
    found = facts_of(tool_of, arguments, [], Before(), timezone.now())
    return found.amount, list(found.recipients)


@pytest.mark.parametrize(
    "arguments",
    [{"total_amount": 5, "recipient_email": "a@x.io"}, {"totalAmount": 5, "recipientEmail": "a@x.io"},
     {"total-amount": 5, "payeeIBAN": "A@x.io"}, {"TotalAmount": 5, "IBANOfPayee": "a@x.io"}],
)  # fmt: skip
def test_amounts_and_recipients_are_known_by_their_names_however_these_are_written(arguments: dict[str, Any]) -> None:
    assert facts(arguments) == (5.0, ["a@xio"])


def test_an_amount_is_weighed_as_a_text_as_well() -> None:
    assert facts({"amount": "99999.00"}) == (99999.0, [])
    assert facts({"paid": "$1,250.50"}, paid={"type": "string", "format": "money"}) == (1250.5, [])
    assert facts({"amount": "all of it", "price": True}) == (None, [])
