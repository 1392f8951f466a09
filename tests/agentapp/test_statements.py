"""How often the loop talks to the database. It is counted, so that it cannot grow unnoticed."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agentapp import actions, executions, loop, runs
from agentapp.executions import Outcome
from agentapp.messages import Reply, ToolResult
from agentapp.models import Agent
from approvals import decisions, ledger
from approvals.models import Channel, Rule
from tests.conftest import call, calls, says
from tests.rows import (
    USE_WITHIN,
    a_card,
    a_claimed_run,
    a_decision,
    a_moment_ago,
    a_proposal,
    a_request,
    a_step,
    a_tool,
    take,
)
from tests.wire import DIALECTS, Answer, provider

__all__ = ["provider"]
BRACKETS = ("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE", "ROLLBACK")


def statements(run) -> list[str]:
    """The statements of one drive, without those that begin and end its transactions."""
    with CaptureQueriesContext(connection) as captured:
        loop.drive(run.pk)
    return [query["sql"] for query in captured if not query["sql"].startswith(BRACKETS)]


def reading(steps: int):
    return [calls(call(f"c{n}", "look_up", what=str(n))) for n in range(steps)]


def test_a_settled_reading_step_takes_seven_statements_however_long_the_run(clerk, vendor):
    """On SQLite, where nothing is sent over a wire, the head of a chain and its events are two statements."""
    each = 7 if vendor == "postgresql" else 9
    counts = [len(statements(clerk.start(*reading(steps), says("done")))) for steps in (1, 2, 3, 12)]
    assert counts[1] - counts[0] == counts[2] - counts[1] == each
    assert counts[3] - counts[0] == 11 * each


def test_three_reads_of_a_step_take_no_more_statements_than_one(clerk):
    one = clerk.start(calls(call("a", "look_up", what="1")), says("done"))
    three = clerk.start(calls(*[call(str(n), "look_up", what=str(n)) for n in range(3)]), says("done"))
    assert len(statements(three)) == len(statements(one))


def test_what_is_stopped_is_asked_right_before_each_model_but_the_first_behind_a_claim(clerk, provider):
    Agent.objects.update(model=DIALECTS["openai"].model, driver="tool_calling")
    for number in range(2):
        provider.answer(Answer(DIALECTS["openai"].reply(calls=[(f"c{number}", "look_up", {"what": str(number)})])))
    provider.answer(Answer(DIALECTS["openai"].reply("done")))
    run = actions.start_run(actions.NewRun(agent="clerk", input="Look."), clerk.starter)
    sql = statements(run)
    run.refresh_from_db()
    assert (run.state, len(provider.questions)) == ("succeeded", 3)
    asked = [text for text in sql if 'FROM "agentapp_run" WHERE' in text and "agentapp_killswitch" in text]
    assert len(asked) == 2


def test_a_step_that_parks_takes_seventeen_statements_at_most(clerk, roles):
    """One of them looks at what the tool did before: the request's risk depends on it."""
    rule = Rule.objects.create(name="payments", tool="pay", verdict="ask")
    rule.groups.add(roles["approver"])
    Channel.objects.create(name="desk", kind="memory")
    run = clerk.start(*reading(3), calls(call("p", "pay", account="ana", amount=1)))
    sql = statements(run)
    run.refresh_from_db()
    assert run.state == "waiting"
    recorded = [n for n, text in enumerate(sql) if text.startswith('UPDATE "agentapp_run" SET "step_count"')]
    assert len(recorded) == 4
    parking = sql[recorded[-1] :]
    assert len(parking) <= 17, "\n".join(parking)


# --- The writers, each in a transaction of its own ----------------------------------------------


def written(write: Callable[[], Any]) -> list[str]:
    """Verb and table of each statement of one transaction, in order."""
    with CaptureQueriesContext(connection) as captured, ledger.transaction():
        write()
    sql = [query["sql"] for query in captured if not query["sql"].startswith(BRACKETS)]
    # The last table a query reads from is its own; the others are for values it looks up on the way.
    return [f"{text.split()[0]} {re.findall(TABLE, text)[-1 if text.startswith('SELECT') else 0]}" for text in sql]


TABLE = r'(?:FROM|INTO|UPDATE) "(?:agentapp|approvals|auth)_(\w+)"'
# What a transaction that records anything runs in addition, for any number of events and chains.
EVENTS = ["SELECT chainhead", "INSERT event", "INSERT chainhead"]


@pytest.mark.django_db
@pytest.mark.parametrize("number", [1, 5])
def test_a_step_and_its_calls_are_stored_in_six_statements(number):
    run, token = a_claimed_run()
    proposals = [a_proposal(a_tool(f"tool_{place}"), asks=True) for place in range(number)]
    now = timezone.now()

    def write() -> None:
        step = runs.record_step(run, token, Reply(text="I look."), [], now, now)
        executions.propose(run, step, proposals)

    assert written(write) == ["UPDATE run", "INSERT step", "INSERT toolexecution", *EVENTS]


@pytest.mark.django_db
@pytest.mark.parametrize("number", [1, 5])
def test_results_are_stored_in_five_statements(number):
    run, token = a_claimed_run()
    reads = [a_proposal(a_tool(f"tool_{place}", "read"), starts_now=True) for place in range(number)]
    _, made = a_step(run, token, reads)

    def write() -> None:
        runs.held(run.pk, token)
        executions.finish([Outcome(execution, ToolResult(data=1)) for execution in made])

    assert written(write) == ["SELECT run", "UPDATE toolexecution", *EVENTS]


@pytest.mark.django_db
@pytest.mark.parametrize("number", [1, 5])
def test_a_run_asks_and_lets_go_in_nine_statements(roles, number):
    run, token = a_claimed_run()
    proposals = [a_proposal(a_tool(f"tool_{place}"), asks=True) for place in range(number)]
    _, made = a_step(run, token, proposals)
    Channel.objects.create(name="desk", kind="memory")
    channels = list(Channel.objects.prefetch_related("groups"))
    cards = [a_card(run_id=run.pk, execution_id=e.pk, groups=(roles["approver"].pk,)) for e in made]

    def write() -> None:
        held = runs.held(run.pk, token)
        executions.hold(made, decisions.request(cards, runs.clock(held), channels))
        runs.park(run, token, "approval")

    assert written(write) == [
        "SELECT run",
        "INSERT approval",
        "INSERT approval_groups",
        "INSERT notification",
        "UPDATE toolexecution",
        "UPDATE run",
        *EVENTS,
    ]


@pytest.mark.django_db
@pytest.mark.parametrize("needed", [1, 2])
def test_a_decision_takes_thirteen_statements_at_most(roles, dana, marco, needed):
    group = roles["approver"].pk
    approval = a_request(approvals_needed=needed, groups=(group,))
    if needed == 2:
        approval = take(approval, marco)
    incoming = a_decision(approval, dana)
    counted = written(lambda: decisions.decide(approval.pk, incoming, USE_WITHIN))
    # Four of them look up what the person may do and which groups they share with the request.
    assert len(counted) <= 13, counted


@pytest.mark.django_db
def test_an_approval_is_used_in_four_statements(dana):
    approval = a_moment_ago(take(a_request(), dana), "runs_at")
    assert written(lambda: decisions.consume(approval)) == ["UPDATE approval", *EVENTS]


@pytest.mark.django_db
def test_configuration_is_read_at_no_cost_by_who_holds_a_run():
    run, token = a_claimed_run()
    assert written(lambda: runs.held(run.pk, token)) == ["SELECT run"]
