"""What an agent always knows of its customer: read by calls like any other, as long as it is valid."""

from dataclasses import replace
from datetime import timedelta

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils import timezone

from agentapp import context_variables
from agentapp.drivers.scripted import ScriptedDriver
from agentapp.messages import Reply
from agentapp.models import ContextVariable, Run, Tool, ToolExecution
from agentapp.tools.base import ToolContext, ToolError, tool
from tests.conftest import Clerk, says

CALLS: list[str] = []


@tool(effect="read", trust="trusted_system")
def open_orders(context: ToolContext, most: int = 5) -> list[str]:
    """The open orders of the customer."""
    CALLS.append(context.customer)
    if context.customer == "Nobody":
        raise ToolError("There is no such customer.")
    return [f"order {len(CALLS)} of {context.customer}"]


@pytest.fixture
def orders(clerk: Clerk, offer, monkeypatch) -> ContextVariable:
    """A variable, and a driver that reads what is stale before it asks its script."""
    CALLS.clear()
    rows = offer(open_orders)
    real = ScriptedDriver.next_step

    def refresh_first(self, request):
        stale = context_variables.stale(Run.objects.get(pk=request.run_id))
        return Reply(tool_calls=tuple(stale)) if stale else real(self, replace(request, step=1))

    monkeypatch.setattr(ScriptedDriver, "next_step", refresh_first)
    return ContextVariable.objects.create(agent=clerk.agent, name="orders", tool=rows["open_orders"])


def ask(clerk: Clerk, customer: str = "Ana") -> Run:
    return clerk.run(says("Hello."), customer=customer)


def known(run: Run) -> dict:
    return {name: execution.value for name, execution in context_variables.values(run).items()}


def test_a_value_is_the_result_of_a_call_of_the_run(clerk, orders):
    run = ask(clerk)
    execution = run.executions.get()
    assert (execution.variable, execution.state, execution.allowed_by) == ("orders", "finished", "read")
    assert known(run) == {"orders": ["order 1 of Ana"]}
    assert context_variables.stale(run) == []


def test_without_a_freshness_each_run_reads_its_own(clerk, orders):
    first, second = ask(clerk), ask(clerk)
    assert known(first) == {"orders": ["order 1 of Ana"]}
    assert known(second) == {"orders": ["order 2 of Ana"]}


def test_while_a_value_counts_later_runs_of_the_customer_read_nothing(clerk, orders):
    ContextVariable.objects.update(freshness_seconds=3600)
    ask(clerk)
    second = ask(clerk)
    assert (known(second), second.executions.count()) == ({"orders": ["order 1 of Ana"]}, 0)
    assert known(ask(clerk, "Bo")) == {"orders": ["order 2 of Bo"]}


def test_what_is_too_old_is_no_value_and_is_read_anew(clerk, orders):
    ContextVariable.objects.update(freshness_seconds=3600)
    run = ask(clerk)
    ToolExecution.objects.update(finished_at=timezone.now() - timedelta(hours=2))
    assert known(run) == {}
    [call] = context_variables.stale(run)
    assert (call.name, call.arguments_text, call.variable) == ("open_orders", "{}", "orders")
    assert known(ask(clerk)) == {"orders": ["order 2 of Ana"]}


def test_a_value_that_counts_for_no_time_is_read_once_before_each_decision(clerk, orders):
    ContextVariable.objects.update(freshness_seconds=0)
    for customer in ("Ana", ""):
        run = ask(clerk, customer)
        assert (run.state, run.executions.count(), run.step_count) == ("succeeded", 1, 2)
    assert known(ask(clerk)) == {}


def test_of_a_customer_without_a_name_nothing_is_taken_from_another_run(clerk, orders):
    ContextVariable.objects.update(freshness_seconds=3600)
    assert known(ask(clerk, "")) == {"orders": ["order 1 of "]}
    assert known(ask(clerk, "")) == {"orders": ["order 2 of "]}


def test_what_failed_is_not_tried_again_in_its_run(clerk, orders):
    run = ask(clerk, "Nobody")
    assert (run.answer, known(run), context_variables.stale(run)) == ("Hello.", {}, [])
    assert run.executions.get().result_status == "fatal_error"


@pytest.mark.parametrize("changed", [{"arguments": {"most": 9}}, {"name": "other"}])
def test_what_was_read_for_another_question_is_no_answer(clerk, orders, changed):
    ContextVariable.objects.update(freshness_seconds=3600)
    run = ask(clerk)
    ContextVariable.objects.update(**changed)
    assert known(run) == {}
    assert len(context_variables.stale(run)) == 1


def test_defaults_that_are_written_out_ask_the_same(clerk, orders):
    ContextVariable.objects.update(freshness_seconds=3600)
    run = ask(clerk)
    ContextVariable.objects.update(arguments={"most": 5})
    assert known(run) == {"orders": ["order 1 of Ana"]}


def test_a_tool_that_may_change_something_by_now_is_not_read(clerk, orders):
    run = ask(clerk)
    Tool.objects.filter(name="open_orders").update(effect_class="reversible")
    assert (known(run), context_variables.stale(run)) == ({}, [])


def test_a_call_that_the_model_asked_for_is_no_variables(clerk, orders):
    run = ask(clerk)
    ToolExecution.objects.update(variable="")
    assert known(run) == {}


def test_an_agent_without_variables_costs_one_query(clerk, django_assert_num_queries):
    run = ask(clerk)
    with django_assert_num_queries(1):
        assert context_variables.stale(run) == []
    with django_assert_num_queries(1):
        assert context_variables.values(run) == {}


def test_only_reads_and_objects_are_accepted_and_each_name_once(clerk, orders):
    with pytest.raises(ValidationError, match="only read"):
        ContextVariable(agent=clerk.agent, name="x", tool=Tool.objects.get(name="pay")).full_clean()
    with pytest.raises(ValidationError, match="one JSON object"):
        ContextVariable(agent=clerk.agent, name="x", tool=orders.tool, arguments=[1]).full_clean()
    for odd in (2**60, float("nan"), "half \ud800", "\x00"):
        with pytest.raises(ValidationError, match="No call can carry"):
            ContextVariable(agent=clerk.agent, name="x", tool=orders.tool, arguments={"most": odd}).full_clean()
    with pytest.raises(IntegrityError), transaction.atomic():
        ContextVariable.objects.create(agent=clerk.agent, name="orders", tool=orders.tool)
