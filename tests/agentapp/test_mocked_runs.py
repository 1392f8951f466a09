"""A mocked run goes through the same gate, and reaches nothing: no tool, no person, no figure."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from agentapp import actions, hooks, isolation, observe
from agentapp.evals import people
from agentapp.insights.counting import count
from agentapp.mocks import MocksError, check_mocks
from agentapp.models import Agent, Breaker, Conversation, Run, Spending, Tool, ToolExecution, ToolSource
from agentapp.refused import Refused
from agentapp.tools import base, python_source, sources
from agentapp.webhooks import collecting
from approvals import ledger, standing
from approvals.models import Approval, Channel, Decision, Event, Notification, Rule
from tests.clerk_tools import EFFECTS, effects_of, note
from tests.conftest import Clerk, call, calls, says
from tests.grants import a_grant
from tests.plans import ANN, BOB, a_plan, let_plan, refund
from tests.plans import made as made_of
from tests.teams import Team, child_of

SEEN: list[str] = []
"""What hooks of this module have done to the world."""


@hooks.hook("before_tool_use", "on_stop")
def acts(context: Any) -> None:
    SEEN.append("acts")


@hooks.hook("before_tool_use", in_mocked_runs=True)
def only_looks(context: Any) -> None:
    SEEN.append("looks")


def answers(**tools: Any) -> dict[str, Any]:
    """Mocks in which each of these tools has one answer, or several in turn."""
    return {
        "tools": {
            name: {"answers": [{"sequence": given if isinstance(given, list) else [given]}]}
            for name, given in tools.items()
        }
    }


def allow(*tools: str) -> None:
    for number, name in enumerate(tools):
        Rule.objects.create(name=f"allow {name}", tool=name, verdict="allow", order=number + 1)


@pytest.fixture
def evaluated(clerk: Clerk) -> Clerk:
    """The clerk, started by a person who may run evals."""
    SEEN.clear()
    clerk.agent.refresh_from_db()
    return clerk


def run(clerk: Clerk, *replies: dict[str, Any], mocks: dict[str, Any] | None = None, **more: Any) -> Run:
    return clerk.run(*replies, mocks={} if mocks is None else mocks, **more)


def result_of(run: Run, call_id: str = "a") -> tuple[str, str]:
    execution = ToolExecution.objects.get(run=run, call_id=call_id)
    assert execution.mocked
    return execution.result_status, execution.reason


# --- What answers --------------------------------------------------------------------------------


def test_a_mocked_read_gives_its_mock_and_the_tool_is_not_called(evaluated):
    made = run(
        evaluated,
        calls(call("a", "look_up", what="x")),
        says("done"),
        mocks=answers(look_up={"result": {"found": "mock"}}),
    )
    assert (made.state, made.is_mocked) == ("succeeded", True)
    assert evaluated.execution(made, "a").value == {"found": "mock"}
    assert EFFECTS == []


def test_a_call_without_a_mock_fails_as_not_mocked_and_the_tool_is_not_called(evaluated):
    allow("label", "send", "pay")
    script = [
        calls(
            call("a", "look_up", what="x"),
            call("b", "label", text="y"),
            call("c", "send", to="ann"),
            call("d", "pay", account="ana", amount=5),
        )
    ]
    made = run(evaluated, *script, says("done"))
    for call_id in "abcd":
        assert result_of(made, call_id) == ("fatal_error", "not_mocked")
    assert EFFECTS == []


def test_an_answer_is_for_the_arguments_it_names(evaluated):
    mocks = {
        "tools": {
            "look_up": {
                "answers": [
                    {"when": {"what": "x"}, "sequence": [{"result": 1}]},
                    {"when": {"what": "y"}, "sequence": [{"result": 2}]},
                ]
            }
        }
    }
    asked = calls(call("a", "look_up", what="y"), call("b", "look_up", what="x"), call("c", "look_up", what="z"))
    made = run(evaluated, asked, says("done"), mocks=mocks)
    assert evaluated.execution(made, "a").value == 2
    assert evaluated.execution(made, "b").value == 1
    assert result_of(made, "c") == ("fatal_error", "not_mocked")


def test_calls_get_the_answers_of_a_sequence_in_turn_and_the_last_one_stays(evaluated):
    mocks = answers(look_up=[{"result": "first"}, {"result": "second"}])
    script = [calls(call(name, "look_up", what=name)) for name in "abc"]
    made = run(evaluated, *script, says("done"), mocks=mocks)
    assert [evaluated.execution(made, name).value for name in "abc"] == ["first", "second", "second"]


def test_an_attempt_that_may_be_repeated_takes_the_next_answer_without_a_pause(evaluated):
    allow("sync")
    mocks = answers(sync=[{"error": "busy", "retryable": True}, {"error": "busy", "retryable": True}, {"result": "ok"}])
    made = run(evaluated, calls(call("a", "sync", text="x")), says("done"), mocks=mocks)
    execution = evaluated.execution(made, "a")
    assert (execution.value, execution.attempts, len(execution.failures)) == ("ok", 3, 2)
    assert EFFECTS == []


def test_reads_of_one_step_take_their_answers_in_its_order_attempt_by_attempt(evaluated):
    mocks = answers(look_up=[{"error": "busy", "retryable": True}, {"result": "1"}, {"result": "2"}, {"result": "3"}])
    asked = [call(name, "look_up", what=name) for name in "abc"]
    made = run(evaluated, calls(*asked), says("done"), mocks=mocks)
    found = [evaluated.execution(made, name) for name in "abc"]
    assert [(execution.value, execution.attempts) for execution in found] == [("1", 2), ("2", 1), ("3", 1)]


def test_what_an_answer_for_certain_arguments_has_answered_uses_nothing_of_a_sequence_for_the_others(evaluated):
    known = [
        {"when": {"what": "x"}, "sequence": [{"result": "for x"}]},
        {"sequence": [{"result": "first"}, {"result": "second"}]},
    ]
    script = [calls(call(name, "look_up", what=name)) for name in "xyz"]
    made = run(evaluated, *script, says("done"), mocks={"tools": {"look_up": {"answers": known}}})
    assert [evaluated.execution(made, name).value for name in "xyz"] == ["for x", "first", "second"]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"error": "no such thing"}, ("fatal_error", "tool_failure")),
        ({"error": "busy", "retryable": True}, ("retryable_error", "tool_failure")),
        ({"timeout": True}, ("retryable_error", "tool_timeout")),
        ({"malformed": "<<not json"}, ("fatal_error", "tool_result_invalid")),
    ],
)
def test_a_read_fails_as_its_mock_says(evaluated, answer, expected):
    made = run(evaluated, calls(call("a", "look_up", what="x")), says("done"), mocks=answers(look_up=answer))
    assert result_of(made) == expected
    assert EFFECTS == []


@pytest.mark.parametrize("answer", [{"timeout": True}, {"unknown": "the line went dead"}])
def test_a_write_that_does_not_answer_is_unknown_and_waits_for_a_person(evaluated, answer):
    allow("send")
    made = run(evaluated, calls(call("a", "send", to="ann")), says("done"), mocks=answers(send=answer))
    assert (made.state, made.waiting_for) == ("waiting", "outcome")
    assert evaluated.execution(made, "a").state == "outcome_unknown"


def test_a_mock_can_stop_the_run(evaluated):
    made = run(
        evaluated, calls(call("a", "look_up", what="x")), says("done"), mocks=answers(look_up={"stop": "enough"})
    )
    assert (made.state, made.stop_reason) == ("stopped", "stop_requested")


@pytest.mark.parametrize(
    "wrong",
    [
        {"tool": {}},
        {"tools": {"look_up": {"answers": [{"sequence": []}]}}},
        {"tools": {"look_up": {"answers": [{"sequence": [{}]}]}}},
        {"tools": {"look_up": {"answers": [{"sequence": [{"result": 1, "timeout": True}]}]}}},
        {"agents": {"other": []}},
        [],
    ],
)
def test_what_are_no_mocks_starts_no_run(evaluated, wrong):
    with pytest.raises(MocksError):
        check_mocks(wrong)
    with pytest.raises(Refused, match="mocks"):
        evaluated.start(says("done"), mocks=wrong)


# --- Who and where -------------------------------------------------------------------------------


def test_starting_a_mocked_run_needs_the_right_to_run_evals(evaluated, dana):
    new = actions.NewRun(agent="clerk", input="Do it.", script=[says("x")], mocks={})
    with pytest.raises(Refused, match="run evals"):
        actions.start_run(new, dana)


def test_a_mocked_run_takes_a_script_where_real_ones_may_not(evaluated, settings):
    settings.ALLOW_SCRIPTED_RUNS = False
    assert run(evaluated, says("done")).state == "succeeded"
    with pytest.raises(Refused, match="ALLOW_SCRIPTED_RUNS"):
        evaluated.start(says("done"))


def test_a_mocked_run_is_in_no_conversation_and_leads_to_no_real_run(evaluated, sam):
    with pytest.raises(Refused, match="cannot be in a conversation"):
        evaluated.start(says("done"), mocks={}, conversation="ticket-1")
    made = run(evaluated, says("done"))
    with pytest.raises(Refused, match="mocked"):
        actions.retry_run(made.pk, sam)
    with pytest.raises(Refused, match="mocked"):
        actions.take_over_run(made.pk, sam)
    with pytest.raises(Refused, match="mocked"):
        evaluated.start(says("more"), follows=made.pk)
    assert Conversation.objects.count() == 0


def test_the_database_keeps_a_mocked_run_out_of_conversations(evaluated):
    made = run(evaluated, says("done"))
    talk = Conversation.objects.create(agent=evaluated.agent, key="k")
    with pytest.raises(IntegrityError), transaction.atomic():
        Run.objects.filter(pk=made.pk).update(conversation=talk)


def test_a_mocked_call_cannot_be_undone(evaluated, offer, sam):
    @base.tool(effect="reversible")
    def put_back(text: str) -> str:
        """Put it back."""
        note("put_back")
        return text

    def way_back(text: str) -> dict[str, str]:
        note("way_back")
        return {"text": text}

    @base.tool(effect="reversible", undone_by="put_back", undo=way_back)
    def put(text: str) -> str:
        """Put it there."""
        note("put")
        return text

    offer(put_back, put)
    allow("put", "put_back")
    made = run(evaluated, calls(call("a", "put", text="x")), says("done"), mocks=answers(put={"result": "there"}))
    assert result_of(made) == ("ok", "")
    with pytest.raises(Refused, match="mocked"):
        actions.undo_call(evaluated.execution(made, "a").pk, "Why not.", sam)
    assert EFFECTS == []


@pytest.mark.parametrize("kind", ["python", "openapi", "mcp"])
@pytest.mark.parametrize("effect", ["read", "reversible"])
def test_tools_of_every_kind_of_source_are_mocked(evaluated, monkeypatch, kind, effect):
    looked_for: list[str] = []

    def finder(path: str) -> Any:
        looked_for.append(path)
        return lambda row: None

    source = ToolSource.objects.create(name=f"other-{kind}", kind=kind, location="https://elsewhere.test/")
    elsewhere = Tool.objects.create(
        source=source, name="elsewhere", description="Does it elsewhere.", effect_class=effect, version="1",
        input_schema={"type": "object", "properties": {"what": {"type": "string"}}},
    )  # fmt: skip
    evaluated.agent.tools.add(elsewhere)
    allow("elsewhere")
    monkeypatch.setattr(sources, "import_string", finder)
    script = [calls(call("a", "elsewhere", what="x"), call("b", "elsewhere", what="y")), says("done")]
    mocks = {"tools": {"elsewhere": {"answers": [{"when": {"what": "x"}, "sequence": [{"result": "mock"}]}]}}}
    made = run(evaluated, *script, mocks=mocks)
    assert (result_of(made, "a"), result_of(made, "b")) == (("ok", ""), ("fatal_error", "not_mocked"))
    assert looked_for == []
    # A real run does look for what to call.
    evaluated.run(*script)
    assert looked_for


# --- No code of a tool ---------------------------------------------------------------------------


def test_no_code_beside_a_tool_runs_for_a_mocked_run(evaluated, offer):
    def touched(name: str) -> Any:
        def look(text: str) -> Any:
            note(name)
            return {"seen": text} if name == "snapshot" else [{"name": "text", "after": text}]

        return look

    def outcome(text: str) -> dict[str, Any]:
        note("outcome")
        return {"text": text}

    class Checked(str):
        """A type whose validator is code of the tool."""

        @classmethod
        def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
            from pydantic_core import core_schema

            def validate(value: str) -> str:
                note("validated")
                return value

            return core_schema.no_info_after_validator_function(validate, core_schema.str_schema())

    @base.tool(
        effect="reversible", title="Do {text} as {snapshot.seen}", snapshot=touched("snapshot"),
        preview=touched("preview"), outcome=outcome,
    )  # fmt: skip
    def do(text: Checked) -> str:
        """Do it."""
        note("do")
        return text

    offer(do)
    made = run(evaluated, calls(call("a", "do", text="x")), says("done"), mocks=answers(do={"result": "done"}))
    approval = Approval.objects.get(run_id=made.pk)
    assert (made.waiting_for, approval.title) == ("approval", "Do x as [seen]")
    people.take(approval, "approve")
    assert evaluated.drive(made).state == "succeeded"
    assert EFFECTS == []
    # A real run does touch the world, so the test above can fail.
    evaluated.run(calls(call("a", "do", text="x")), says("done"))
    assert {name for name, _, _ in EFFECTS} == {"validated", "snapshot", "preview"}


def test_while_a_mocked_run_is_driven_no_code_of_a_tool_can_be_found_or_called(clerk):
    tool = Tool.objects.select_related("source").get(name="look_up")
    from agentapp.tools.sources import implementation_of

    declared = python_source.get("look_up")
    assert implementation_of(tool) is declared
    assert declared is not None
    with isolation.isolated():
        assert implementation_of(tool) is None
        with pytest.raises(isolation.Isolated):
            declared.run({"what": "x"}, None)  # type: ignore[arg-type]
        with pytest.raises(isolation.Isolated):
            declared.says(lambda what: note("said"), {"what": "x"})
        with isolation.isolated(False):
            assert isolation.is_on()
    assert not isolation.is_on()
    assert EFFECTS == []


def test_a_state_that_changes_before_the_call_runs_asks_again(evaluated):
    mocks = {
        "tools": {
            "pay": {
                "answers": [{"sequence": [{"result": "paid"}]}],
                "snapshot": [{"holder": "Ana", "balance": 1}, {"holder": "Ana", "balance": 2}],
            }
        }
    }
    made = run(evaluated, calls(call("a", "pay", account="ana", amount=5)), says("done"), mocks=mocks)
    people.take(Approval.objects.get(run_id=made.pk), "approve")
    made = evaluated.drive(made)
    first, second = Approval.objects.filter(run_id=made.pk).order_by("created_at")
    assert (first.state, second.state) == ("superseded", "pending")
    assert second.difference == [{"name": "balance", "was": 1, "now": 2}]
    people.take(second, "approve")
    assert evaluated.drive(made).state == "succeeded"
    assert EFFECTS == []


# --- Agents that ask agents ----------------------------------------------------------------------


def test_the_runs_that_a_mocked_run_begins_are_mocked_alike(evaluated):
    team = Team(evaluated)
    team.may_ask("refunds", calls(call("x", "look_up", what="secret")), says("Refund it."))
    mocks = answers(look_up={"result": "mock"}) | {"agents": {}}
    root = team.run(calls(call("a", "ask_refunds", input="May we?")), says("done"), mocks=mocks)
    child = child_of(root)
    assert (root.state, child.state, child.mocks) == ("succeeded", "succeeded", root.mocks)
    assert evaluated.execution(child, "x").value == "mock"
    assert EFFECTS == []


def test_mocks_can_answer_for_an_agent_or_say_what_it_answers(evaluated):
    team = Team(evaluated)
    team.may_ask("refunds", says("for real"))
    by_tool = answers(ask_refunds={"result": "no"})
    root = team.run(calls(call("a", "ask_refunds", input="May we?")), says("done"), mocks=by_tool)
    assert evaluated.execution(root, "a").value == "no"
    assert Run.objects.filter(parent=root).count() == 0
    scripted = {"agents": {"refunds": [says("by script")]}}
    root = team.run(calls(call("a", "ask_refunds", input="May we?")), says("done"), mocks=scripted)
    assert evaluated.execution(root, "a").value == "by script"


def test_a_scripted_mocked_run_asks_no_agent_that_would_ask_a_real_model(evaluated):
    team = Team(evaluated)
    other = team.may_ask("refunds", says("never"))
    Agent.objects.filter(pk=other.pk).update(driver="tool_calling", model="test:none")
    root = team.run(calls(call("a", "ask_refunds", input="May we?")), says("done"), mocks={})
    assert result_of(root) == ("fatal_error", "not_mocked")
    assert Run.objects.filter(parent=root).count() == 0


# --- Order, retries and workers that die ---------------------------------------------------------


def test_a_read_behind_a_write_that_waits_is_mocked_when_its_turn_comes(evaluated):
    mocks = answers(send={"result": "sent"}, look_up={"result": "late"})
    made = run(evaluated, calls(call("a", "send", to="ann"), call("b", "look_up", what="x")), says("done"), mocks=mocks)
    assert evaluated.execution(made, "b").state == "ready"
    people.take(Approval.objects.get(run_id=made.pk), "approve")
    made = evaluated.drive(made)
    assert (made.state, evaluated.execution(made, "b").value) == ("succeeded", "late")
    assert EFFECTS == []


def test_a_worker_that_takes_over_a_begun_call_is_given_the_mock_too(evaluated):
    allow("pay_once")
    mocks = answers(pay_once=[{"result": "first"}, {"result": "second"}])
    new = evaluated.start(calls(call("a", "pay_once", account="ana", amount=5)), says("done"), mocks=mocks)
    with pytest.MonkeyPatch.context() as patched:
        from agentapp import executor

        def die(*_: Any) -> Any:
            raise SystemExit

        patched.setattr(executor, "_run_begun", die)
        with pytest.raises(SystemExit):
            evaluated.drive(new)
    assert not isolation.is_on()
    Run.objects.filter(pk=new.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
    made = evaluated.drive(new)
    execution = evaluated.execution(made, "a")
    assert (made.state, execution.value, execution.attempts) == ("succeeded", "second", 2)
    assert EFFECTS == []


# --- What it takes from nobody -------------------------------------------------------------------


def test_a_mocked_call_does_not_take_the_business_key_of_a_real_one(evaluated, offer):
    @base.tool(effect="reversible", business_key="order {order}")
    def ship(order: str) -> str:
        """Ship an order, once."""
        note("ship", order=order)
        return "shipped"

    offer(ship)
    allow("ship")
    shipped = calls(call("a", "ship", order="7"))
    again = calls(call("b", "ship", order="7"))
    for _ in range(2):
        made = run(evaluated, shipped, again, says("done"), mocks=answers(ship={"result": "mock"}))
        assert result_of(made) == ("ok", "")
        assert result_of(made, "b") == ("refused", "idempotency_key_consumed")
    real = evaluated.run(shipped, says("done"))
    assert evaluated.execution(real, "a").value == "shipped"
    # And a real call does not block a mocked one.
    assert result_of(run(evaluated, shipped, says("done"), mocks=answers(ship={"result": "mock"}))) == ("ok", "")
    assert len(effects_of("ship")) == 1


def test_the_database_lets_no_mocked_call_take_a_real_key_or_the_other_way_round(evaluated):
    allow("label")
    made = run(evaluated, calls(call("a", "label", text="x")), says("done"), mocks=answers(label={"result": "x"}))
    real = evaluated.run(calls(call("a", "label", text="x")), says("done"))
    for of, key in ((made, "0" * 64), (real, "mock:" + "0" * 59)):
        with pytest.raises(IntegrityError), transaction.atomic():
            ToolExecution.objects.filter(run=of).update(idempotency_key=key)


def test_a_mocked_run_uses_no_grant(evaluated, dana):
    grant = a_grant(evaluated, dana)
    made = run(evaluated, calls(call("a", "send", to="ann")), says("done"), mocks=answers(send={"result": "sent"}))
    grant.refresh_from_db()
    assert (made.waiting_for, grant.hits) == ("approval", 0)


def test_failures_of_mocks_open_no_breaker_and_an_open_one_does_not_stop_them(evaluated, settings):
    settings.BREAKER_THRESHOLD = 1
    mocks = answers(look_up={"error": "down"})
    for _ in range(3):
        run(evaluated, calls(call("a", "look_up", what="x")), says("done"), mocks=mocks)
        run(evaluated, {"error": "the provider is down"}, mocks=mocks)
    assert Breaker.objects.count() == 0
    evaluated.run(calls(call("a", "fail", how="never")), says("done"))
    assert Breaker.objects.get(scope="tool", key="fail").state == "open"
    made = run(evaluated, calls(call("a", "fail", how="x")), says("done"), mocks=answers(fail={"result": "fine"}))
    assert result_of(made) == ("ok", "")
    assert Breaker.objects.get(scope="tool", key="fail").state == "open"


def test_what_a_mocked_run_costs_is_no_part_of_its_agents_day(evaluated):
    Agent.objects.filter(pk=evaluated.agent.pk).update(max_daily_cost=1)
    dear = {"text": "done", "usage": {"input_tokens": 1, "output_tokens": 1, "cost": 5}}
    assert run(evaluated, calls(call("a", "look_up", what="x")), dear).cost == 5
    assert Spending.objects.count() == 0
    assert evaluated.run(says("done")).state == "succeeded"


def test_a_rule_that_counts_counts_mocked_calls_in_their_own_run_alone(evaluated):
    Rule.objects.create(
        name="some", tool="label", verdict="allow", order=1, condition="history.count('label', '1h', 'agent') < 1"
    )
    mocks = answers(label={"result": "x"})
    script = [calls(call("a", "label", text="x")), calls(call("b", "label", text="y")), says("done")]
    for _ in range(2):
        made = run(evaluated, *script, mocks=mocks)
        assert (made.waiting_for, evaluated.execution(made, "a").result_status) == ("approval", "ok")
    real = evaluated.run(calls(call("a", "label", text="x")), says("done"))
    assert real.state == "succeeded"


def test_a_mocked_run_is_in_no_figure(evaluated):
    begin = timezone.now() - timedelta(hours=1)
    made = run(
        evaluated,
        calls(call("a", "look_up", what="x"), call("b", "send", to="ann")),
        {"text": "done", "usage": {"input_tokens": 1, "output_tokens": 1, "cost": 5}},
        mocks=answers(look_up={"result": 1}, send={"result": 1}),
    )
    people.take(Approval.objects.get(run_id=made.pk), "approve")
    assert evaluated.drive(made).state == "succeeded"
    found = count(begin, timezone.now() + timedelta(hours=1))
    assert (found.requests, found.calls, found.models) == ([], [], [])


def test_a_plan_is_proposed_approved_and_carried_out_with_mocks_alone(evaluated, offer, settings):
    offer(refund)
    let_plan(evaluated, settings)
    script = [a_plan(ANN, BOB), calls(made_of("a", ANN)), calls(made_of("b", BOB)), says("done")]
    mocks = {"tools": {"refund": {"answers": [{"sequence": [{"result": "refunded"}]}], "snapshot": {"holder": "x"}}}}
    made = run(evaluated, *script, mocks=mocks)
    [plan] = Approval.objects.filter(run_id=made.pk)
    assert (plan.kind, plan.mocked) == ("plan", True)
    people.take(plan, "approve")
    made = evaluated.drive(made)
    assert (made.state, result_of(made, "a"), result_of(made, "b")) == ("succeeded", ("ok", ""), ("ok", ""))
    assert evaluated.execution(made, "a").allowed_by == f"plan:{plan.reference}"
    assert (EFFECTS, Approval.objects.filter(run_id=made.pk).count()) == ([], 1)


# --- Who is not asked and not told ---------------------------------------------------------------


def test_nobody_is_told_of_a_request_of_a_mocked_run_and_nobody_sees_it(evaluated, dana, mia, ada):
    Channel.objects.create(name="team", kind="memory", active=True)
    made = run(evaluated, calls(call("a", "send", to="ann")), says("done"), mocks=answers(send={"result": 1}))
    approval = Approval.objects.get(run_id=made.pk)
    assert approval.mocked
    assert Notification.objects.count() == 0
    from agentapp import auth

    for user in (dana, mia, ada, evaluated.starter):
        assert not auth.visible_approvals(user).exists()
    evaluated.run(calls(call("a", "send", to="ann")), says("done"))
    assert Notification.objects.count() == 1
    assert auth.visible_approvals(dana).count() == 1


def test_no_person_decides_about_a_mocked_run_and_no_eval_about_a_real_one(evaluated, dana):
    mocked = run(evaluated, calls(call("a", "send", to="ann")), says("done"), mocks=answers(send={"result": 1}))
    with pytest.raises(Refused) as refused:
        evaluated.decide(Approval.objects.get(run_id=mocked.pk), dana)
    assert refused.value.code == "mocked"
    real = evaluated.run(calls(call("a", "send", to="ann")), says("done"))
    approval = Approval.objects.get(run_id=real.pk)
    refusal = people.take(approval, "approve")
    assert isinstance(refusal, standing.Refusal)
    assert refusal.code == "mocked"
    assert not people.expire(approval)
    approval.refresh_from_db()
    assert (approval.state, Decision.objects.count()) == ("pending", 0)


def test_an_evals_decision_does_not_count_for_a_real_request_even_if_it_is_there(evaluated, dana):
    real = evaluated.run(calls(call("a", "send", to="ann")), says("done"))
    [approval] = evaluated.open(real)
    evaluated.decide(approval, dana)
    approval.refresh_from_db()
    assert standing.is_enough(approval)
    Decision.objects.update(user=None, mocked=True)
    assert not standing.is_enough(approval)
    real = evaluated.drive(real)
    assert (real.state, effects_of("send")) == ("waiting", [])


def test_an_evals_decision_stands_for_all_that_is_asked_and_is_recorded_as_its_own(evaluated):
    Rule.objects.create(
        name="critical", tool="send", verdict="ask", order=1, risk="critical", approvals_needed=2, assurance="signed"
    )
    made = run(evaluated, calls(call("a", "send", to="ann")), says("done"), mocks=answers(send={"result": 1}))
    people.take(Approval.objects.get(run_id=made.pk), "approve")
    made = evaluated.drive(made)
    assert (made.state, result_of(made)) == ("succeeded", ("ok", ""))
    decision = Decision.objects.get()
    assert (decision.user, decision.mocked, decision.who) == (None, True, "An eval")
    assert Event.objects.get(type="approval.approved").actor == "eval"
    assert ledger.verify(ledger.run_chain(made.pk))[1] is None


@pytest.mark.parametrize(
    ("type", "reason"), [("reject", "approval_rejected"), ("respond", ""), ("expire", "approval_expired")]
)
def test_an_eval_rejects_answers_and_lets_time_run_out(evaluated, type, reason):
    made = run(evaluated, calls(call("a", "send", to="ann")), says("done"), mocks=answers(send={"result": 1}))
    approval = Approval.objects.get(run_id=made.pk)
    if type == "expire":
        assert people.expire(approval)
    else:
        people.take(approval, type, "Because.")
    made = evaluated.drive(made)
    execution = evaluated.execution(made, "a")
    assert (made.state, execution.reason, execution.started_at) == ("succeeded", reason, None)


def test_the_customer_of_a_mocked_run_can_be_asked_and_the_eval_answers(evaluated):
    Rule.objects.create(name="consent", tool="label", verdict="ask", order=1, answered_by="customer", risk="low")
    Tool.objects.filter(name="label").update(title_template="Label {text}")  # all that there is to the call
    mocks = answers(label={"result": 1})
    made = run(evaluated, calls(call("a", "label", text="x")), says("done"), mocks=mocks, customer="cus_1")
    approval = Approval.objects.get(run_id=made.pk)
    assert approval.kind == "confirmation"
    people.take(approval, "approve")
    assert evaluated.drive(made).state == "succeeded"


def test_hooks_with_effects_are_left_out_of_a_mocked_run(evaluated):
    Agent.objects.filter(pk=evaluated.agent.pk).update(hooks=[f"{__name__}.acts", f"{__name__}.only_looks"])
    run(evaluated, calls(call("a", "look_up", what="x")), says("done"))
    assert SEEN == ["looks"]
    evaluated.run(calls(call("a", "look_up", what="x")), says("done"))
    assert SEEN == ["looks", "acts", "looks", "acts"]


def test_who_watches_from_inside_the_process_is_told_nothing_of_a_mocked_run(evaluated):
    heard: list[tuple[str, str]] = []
    mocked = evaluated.start(calls(call("a", "look_up", what="x")), says("done"), mocks={})
    real = evaluated.start(says("done"))
    end = observe.wiretap(lambda observed: heard.append((observed.run_id, observed.type)))
    try:
        evaluated.drive(mocked)
        evaluated.drive(real)
    finally:
        end()
    # That a worker claimed it is known before it is read.
    assert [type for run_id, type in heard if run_id == str(mocked.pk)] == ["run.claimed"]
    assert ("run.succeeded" in {type for run_id, type in heard if run_id == str(real.pk)}) is True


def test_webhooks_say_nothing_of_a_mocked_run(evaluated, ada):
    from agentapp.models import WebhookDelivery, WebhookEndpoint

    WebhookEndpoint.objects.create(
        name="elsewhere", url="https://elsewhere.test/", events=["run.failed"], credential="DESK",
        created_at=timezone.now() - timedelta(minutes=1),
    )  # fmt: skip
    run(evaluated, {"text": ""})
    real = evaluated.run({"text": ""})
    assert real.state == "failed"
    assert collecting.collect() == 1
    assert all(str(real.pk) in body for body in WebhookDelivery.objects.values_list("body", flat=True))


def test_the_audit_trail_marks_what_a_mocked_run_did(evaluated, mia, client):
    run(evaluated, calls(call("a", "look_up", what="x")), says("done"), title="Rehearsed")
    evaluated.run(says("done"), title="In earnest")
    client.force_login(mia)
    page = client.get("/audit/").content.decode()
    assert "Rehearsed (mocked)" in page
    assert "look_up, Rehearsed (mocked)" in page
    assert "In earnest" in page
    assert "In earnest (mocked)" not in page


def test_the_list_of_runs_leaves_mocked_ones_out_and_their_page_says_what_they_were(evaluated, mia, client):
    made = run(evaluated, says("done"), title="Rehearsed")
    evaluated.run(says("done"), title="In earnest")
    client.force_login(mia)
    listed, asked_for = client.get("/runs/").content.decode(), client.get("/runs/?mocked=1").content.decode()
    assert ("Rehearsed" in listed, "In earnest" in listed) == (False, True)
    assert ("Rehearsed" in asked_for, "In earnest" in asked_for) == (True, False)
    page = client.get(f"/runs/{made.pk}/").content.decode()
    assert "A mocked run." in page
    assert f"/runs/{made.pk}/retry/" not in page


def test_the_ledger_says_that_a_run_was_mocked(evaluated):
    made = run(evaluated, says("done"))
    assert Event.objects.get(run_id=made.pk, type="run.queued").data["mocked"] is True
