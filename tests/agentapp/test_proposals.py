"""The checks of a proposed call: each refusal has its reason, and the model reads what to do."""

import pytest

from agentapp.answers import answer
from agentapp.models import Route, Tool, ToolSource
from agentapp.tools.base import tool
from approvals.models import Event, Rule
from tests.clerk_tools import EFFECTS
from tests.conftest import call, calls, says


def raw(id, name, text):
    """A call whose arguments are the text a model sent, well-formed or not."""
    return {"id": id, "name": name, "arguments": text}


@pytest.mark.parametrize(
    "text",
    [
        '{"account": "ana", "amount": NaN}',
        '{"account": "ana", "amount": Infinity}',
        '{"account": "ana", "amount": 1e999}',
        '{"account": "ana", "amount": 1, "amount": 1000}',
        '{"account": "a\\u0000b", "amount": 1}',
        '{"account": "a\\ud800b", "amount": 1}',
        '{"account": "ana", "amount": 10',
        '["ana", 1]',
        "null",
        '"pay"',
        '{"account": ' + "[" * 65 + "]" * 65 + "}",
        '{"account": "' + "x" * 300_000 + '"}',
        '{"account": "ana", "amount": 90071992547409931}',
    ],
)
def test_arguments_that_are_not_plain_json_are_refused_before_anybody_is_asked(clerk, text):
    run = clerk.run(calls(raw("a", "pay", text)), says("ok"))
    execution = clerk.execution(run, "a")
    assert (execution.result_status, execution.reason) == ("refused", "malformed_arguments")
    assert run.state == "succeeded"
    assert EFFECTS == []


@pytest.mark.parametrize(
    ("arguments", "reason", "names"),
    [
        ({"account": "ana"}, "missing_arguments", "amount"),
        ({"account": "ana", "amount": "10"}, "invalid_arguments", "amount"),
        ({"account": 7, "amount": 10}, "invalid_arguments", "account"),
        ({"account": "ana", "amount": 0}, "invalid_arguments", "amount"),
        ({"account": "ana", "amount": 1001}, "invalid_arguments", "amount"),
        ({"account": "ana", "amount": True}, "invalid_arguments", "amount"),
        ({"account": "ana", "amount": 1, "to": "me"}, "invalid_arguments", "to"),
    ],
)
def test_arguments_that_do_not_fit_the_schema_are_refused_and_named(clerk, arguments, reason, names):
    run = clerk.run(calls(call("a", "pay", **arguments)), says("ok"))
    execution = clerk.execution(run, "a")
    assert (execution.result_status, execution.reason) == ("refused", reason)
    assert names in execution.message
    assert EFFECTS == []


def test_an_unknown_tool_is_refused_and_the_known_ones_are_listed(clerk):
    run = clerk.run(calls(call("a", "pay_everybody")), says("ok"))
    execution = clerk.execution(run, "a")
    assert execution.reason == "tool_not_disclosed"
    assert "look_up" in answer(execution).text


def test_a_tool_outside_the_route_is_refused_like_an_unknown_one(clerk):
    route = Route.objects.create(agent=clerk.agent, name="reading")
    route.tools.set(Tool.objects.filter(name="look_up"))
    Rule.objects.create(name="labels", tool="label", verdict="allow")
    run = clerk.run(calls(call("a", "label", text="red")), says("ok"), route="reading")
    assert (run.state, clerk.execution(run, "a").reason) == ("succeeded", "tool_not_disclosed")
    assert EFFECTS == []
    assert run.steps.get(number=1).disclosed_tools == ["look_up"]


def test_a_switched_off_tool_is_refused_and_says_so(clerk):
    Tool.objects.filter(name="pay").update(enabled=False)
    run = clerk.run(calls(call("a", "pay", account="ana", amount=1)), says("ok"))
    assert clerk.execution(run, "a").reason == "tool_disabled"


@pytest.mark.parametrize("contract", [{}, {"description": "Pays whoever asks."}])
def test_a_tool_whose_changed_contract_nobody_has_looked_at_is_out_of_use(clerk, contract):
    Tool.objects.filter(name="pay").update(waiting_contract=contract)
    run = clerk.run(calls(call("a", "pay", account="ana", amount=1)), says("ok"))
    assert clerk.execution(run, "a").reason == "tool_disabled"
    assert "pay" not in run.steps.get(number=1).disclosed_tools


def test_the_tools_of_a_source_that_is_switched_off_are_out_of_use(clerk):
    ToolSource.objects.update(enabled=False)
    run = clerk.run(calls(call("a", "pay", account="ana", amount=1)), says("ok"))
    assert clerk.execution(run, "a").reason == "tool_disabled"
    assert run.steps.get(number=1).disclosed_tools == []


def test_a_denied_call_is_refused_with_the_rules_words(clerk):
    Rule.objects.create(name="cap", description="Never above 500.", tool="pay", verdict="deny",
                        condition="args.amount > 500.0")  # fmt: skip
    run = clerk.run(calls(call("a", "pay", account="ana", amount=501)), says("ok"))
    execution = clerk.execution(run, "a")
    assert (execution.reason, execution.ruling["rule"]) == ("policy_denied", "cap")
    assert "Never above 500." in execution.message


def test_a_condition_that_cannot_be_evaluated_asks(clerk):
    Rule.objects.create(name="odd", tool="label", verdict="allow", condition="args.nothing > 3")
    assert clerk.run(calls(call("a", "label", text="x"))).waiting_for == "approval"


def test_a_secret_at_which_a_condition_fails_is_on_no_request_and_in_no_event(clerk, offer):
    @tool(effect="compensable", secret=("pin",))
    def unlock(to: str, pin: str) -> str:
        """Unlock an account."""
        return to

    offer(unlock)
    Rule.objects.create(name="known pins", tool="unlock", verdict="ask", condition='{"0000": true}[args.pin]')
    run = clerk.run(calls(call("u", "unlock", to="ann", pin="4711-secret")), says("done"))
    [request] = clerk.open(run)
    assert "could not be evaluated" in request.reason
    told = [event.type for event in Event.objects.filter(run_id=run.pk) if "4711-secret" in event.body]
    assert ("4711-secret" in request.reason, told) == (False, [])


def test_more_calls_than_a_step_may_have_are_refused(clerk):
    many = [call(f"c{n}", "look_up", what=str(n)) for n in range(32)]
    script = [calls(*many), says("ok")]
    run = clerk.run(*script)
    assert run.executions.filter(result_status="ok").count() == 32


def test_the_proposed_text_is_kept_exactly_as_it_came(clerk):
    text = '{ "amount":10.50,"account":"ana" }'
    run = clerk.run(calls(raw("a", "pay", text)))
    assert clerk.execution(run, "a").arguments_text == text
    assert clerk.open(run)[0].arguments_text == '{"account":"ana","amount":10.5,"memo":""}'


def test_every_refused_call_is_a_row_with_its_event(clerk):
    run = clerk.run(calls(call("a", "nothing"), call("b", "look_up", what="x")), says("ok"))
    assert [e.call_id for e in run.executions.order_by("index")] == ["a", "b"]
    assert answer(clerk.execution(run, "b")).ok
