"""Rules that look at other calls, tested on rows: what counts, since when, whose, and two at once."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agentapp import erasing, loop
from agentapp.models import Run, ToolExecution
from agentapp.proposals import Situation, ruling_for
from agentapp.runs import with_configuration
from agentapp.toolset import read_configuration
from agentapp.totals import KeptCalls
from approvals.models import Rule
from approvals.totals import read
from tests.clerk_tools import effects_of
from tests.conftest import call, calls, says
from tests.races import few_tries, race

LIMIT = "history.sum('pay.amount', '24h') + args.amount <= 500.0"
SUM = ("sum", "pay.amount", "24h")


@pytest.fixture
def limit() -> Rule:
    return Rule.objects.create(name="small", tool="pay", verdict="allow", condition=LIMIT)


def pays(amount: float, id: str = "p", account: str = "ana") -> dict[str, Any]:
    return calls(call(id, "pay", account=account, amount=amount))


def now_in(run: Run) -> Run:
    return with_configuration().get(pk=run.pk)


def answer(run: Run, *words: str, **arguments: Any) -> float | int | bool:
    run = now_in(run)
    kept = KeptCalls(run, read_configuration(run, 0).tools, run.database_now, arguments=arguments)  # type: ignore[attr-defined]
    return kept.answer(read(*words))


def test_what_was_paid_before_counts_against_the_limit_across_runs(clerk, limit):
    assert clerk.run(pays(300), says("done")).state == "succeeded"
    assert clerk.run(pays(200), says("done")).state == "succeeded"
    stopped = clerk.run(pays(0.5), says("done"))
    assert (stopped.waiting_for, len(effects_of("pay"))) == ("approval", 2)


def test_of_two_in_one_reply_the_first_runs_and_the_second_asks(clerk, limit):
    run = clerk.run(calls(call("a", "pay", account="ana", amount=300), call("b", "pay", account="ben", amount=300)))
    assert effects_of("pay") == [{"account": "ana", "amount": 300.0}]
    assert [one.execution.call_id for one in clerk.open(run)] == ["b"]


def test_a_person_can_let_a_call_run_beyond_the_limit_and_it_counts(clerk, dana, limit):
    run = clerk.run(pays(600), says("done"))
    clerk.decide(clerk.open(run)[0], dana)
    assert clerk.drive(run).state == "succeeded"
    assert answer(run, *SUM) == 600.0


def test_decimal_amounts_are_summed_as_they_are_written(clerk):
    Rule.objects.create(name="all", tool="pay", verdict="allow")
    run = clerk.run(pays(0.1, "a"), pays(0.2, "b"), says("done"))
    assert answer(run, *SUM) == 0.3


def test_only_what_took_effect_or_may_have_counts(clerk):
    Rule.objects.create(name="all", tool="pay", verdict="allow")
    run = clerk.run(pays(100), says("done"))
    row = ToolExecution.objects.filter(run=run)
    assert answer(run, *SUM) == 100.0
    row.update(result_status="fatal_error")
    assert answer(run, *SUM) == 0.0
    row.update(control={"took_effect": True})
    assert answer(run, *SUM) == 100.0
    row.update(control={}, state="outcome_unknown", result_status="")
    assert answer(run, *SUM) == 100.0
    row.update(state="executing")
    assert answer(run, *SUM) == 100.0
    # It was to be tried again, which nobody allowed: it may have happened the first time.
    row.update(state="finished", result_status="refused", started_at=None)
    assert answer(run, *SUM) == 100.0
    row.update(attempts=0)
    assert answer(run, *SUM) == 0.0
    row.update(state="ready", result_status="")
    assert answer(run, *SUM) == 100.0
    row.update(state="proposed")
    assert answer(run, *SUM) == 0.0


def test_a_span_ends_where_it_says(clerk):
    Rule.objects.create(name="all", tool="pay", verdict="allow")
    run = clerk.run(pays(100), says("done"))
    row = ToolExecution.objects.get(run=run)
    assert row.started_at is not None
    history = KeptCalls(run, {}, row.started_at + timedelta(hours=24))
    assert history.answer(read(*SUM)) == 100.0
    later = KeptCalls(run, {}, row.started_at + timedelta(hours=24, microseconds=1))
    assert later.answer(read(*SUM)) == 0.0


def test_totals_of_a_customer_an_agent_or_a_run_are_theirs_alone(clerk):
    Rule.objects.create(name="all", tool="pay", verdict="allow")
    of_ana = clerk.run(pays(100), says("done"), customer="ana")
    of_ben = clerk.run(pays(10), says("done"), customer="ben")
    assert answer(of_ana, *SUM) == answer(of_ben, *SUM, "agent") == 110.0
    assert answer(of_ana, *SUM, "customer") == 100.0
    assert answer(of_ben, *SUM, "run") == 10.0
    assert answer(of_ben, "count", "pay", "24h") == 2
    assert answer(of_ben, "count", "pay", "24h", "customer") == 1
    with pytest.raises(LookupError, match="no customer"):
        answer(clerk.run(says("done")), *SUM, "customer")


def test_first_time_is_over_when_a_call_with_the_value_took_effect(clerk):
    Rule.objects.create(name="all", tool="pay", verdict="allow")
    run = clerk.run(pays(5, account="ana"), says("done"))
    first = ("first_time", "pay.account")
    assert answer(run, *first, account="ana") is False
    assert answer(run, *first, account="an") is True
    assert answer(run, *first, account="ANA") is True
    assert answer(run, "first_time", "pay.amount", amount=5) is False
    ToolExecution.objects.filter(run=run).update(result_status="fatal_error")
    assert answer(run, *first, account="ana") is True
    with pytest.raises(LookupError, match="has no account"):
        answer(run, *first)


def test_an_erased_call_is_in_no_sum_and_still_one_of_so_many(clerk, ada, limit):
    erased = clerk.run(pays(300), says("done"))
    kept = clerk.run(pays(200), says("done"))
    erasing.erase("run", str(erased.pk), "Ticket 12", ada, "x")
    assert (answer(kept, *SUM), answer(kept, "count", "pay", "24h")) == (200.0, 2)
    assert clerk.run(pays(300), says("done")).state == "succeeded"
    assert clerk.run(pays(0.5), says("done")).waiting_for == "approval"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("sum", "nothing.amount", "24h"), "there is no tool nothing"),
        (("count", "nothing", "24h"), "there is no tool nothing"),
        (("sum", "pay.nothing", "24h"), "has no argument nothing"),
        (("sum", "pay.account", "24h"), "is not a number"),
    ],
)
def test_what_cannot_be_looked_up_asks(clerk, words, why):
    Rule.objects.create(name="all", tool="pay", verdict="allow")
    run = clerk.run(pays(5), says("done"))
    with pytest.raises((LookupError, ValueError), match=why):
        answer(run, *words)
    asked = "history." + words[0] + "(" + ", ".join(f"'{word}'" for word in words[1:]) + ") < 1"
    Rule.objects.update(condition=asked)
    assert clerk.run(pays(6), says("done")).waiting_for == "approval"


def test_a_secret_argument_has_no_history(clerk):
    clerk.agent.tools.filter(name="pay").update(secret_fields=["account"])
    run = clerk.run(says("done"))
    with pytest.raises(LookupError, match="secret"):
        answer(run, "first_time", "pay.account", account="ana")


def test_each_question_is_one_query_and_none_is_asked_without_need(clerk, limit):
    run = now_in(clerk.run(says("done")))
    configuration = read_configuration(run, 0)
    situation = Situation(run, configuration, {}, ())
    tools = configuration.tools
    with CaptureQueriesContext(
        connection,
    ) as asked:
        ruling_for(situation, tools["label"], {"text": "x"})
    assert len(asked) == 0
    with CaptureQueriesContext(connection) as asked:
        ruling_for(situation, tools["pay"], {"account": "ana", "amount": 5})
    assert len(asked) == 1


def test_two_at_once_cannot_both_pass(clerk, limit):
    for number in range(few_tries()):
        ToolExecution.objects.update(started_at=None, attempts=0)  # from the earlier rounds
        before = len(effects_of("pay"))
        runs = [clerk.start(pays(300 + number / 100, account=name), says("done")) for name in ("ana", "ben")]
        race(*[lambda run=run: loop.drive(run.pk) for run in runs])
        assert len(effects_of("pay")) == before + 1
        waiting = [clerk.drive(run) for run in runs]
        assert sorted(run.state for run in waiting) == ["succeeded", "waiting"]
        assert len(effects_of("pay")) == before + 1


def test_two_of_one_group_or_one_of_another_decide_a_call_from_its_rule(clerk, dana, marco):
    payments, managers = Group.objects.create(name="Payments"), Group.objects.create(name="Managers")
    dana.groups.add(payments)
    marco.groups.add(managers)
    asks = Rule.objects.create(
        name="two-or-one", tool="pay", verdict="ask",
        thresholds=[{"approve": 2, "group": "Payments"}, {"approve": 1, "group": "Managers"}],
    )  # fmt: skip
    asks.groups.set([payments, managers])
    run = clerk.run(pays(20), says("done"))
    clerk.decide(clerk.open(run)[0], dana)
    assert effects_of("pay") == []
    clerk.decide(clerk.open(run)[0], marco)
    marco.groups.remove(managers)  # before it begins
    assert clerk.drive(run).waiting_for == "approval"
    assert effects_of("pay") == []
    marco.groups.add(managers)
    clerk.decide(clerk.open(run)[0], marco)
    assert clerk.drive(run).state == "succeeded"
    assert len(effects_of("pay")) == 1


def test_reads_of_one_reply_count_for_each_other(clerk):
    Rule.objects.create(
        name="few", tool="look_up", verdict="deny", condition="history.count('look_up', '1h', 'run') >= 2"
    )
    many = [call(f"r{number}", "look_up", what=str(number)) for number in range(6)]
    run = clerk.run(calls(*many), says("done"))
    ran = [n for n in range(6) if clerk.execution(run, f"r{n}").result_status == "ok"]
    assert len(ran) == 2
