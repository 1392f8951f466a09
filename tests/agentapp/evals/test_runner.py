"""Evals carried out: cases driven here, decided as they say, judged, stored, and compared with each other."""

import json
import threading
from io import StringIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from agentapp import actions, draining, evaluating, loop, tasks
from agentapp.evals import driving, reporting, results, runner, suites
from agentapp.evals.cases import Case
from agentapp.evals.comparing import compare
from agentapp.evals.observing import broken_by, final_status
from agentapp.models import Agent, Breaker, EvalCase, EvalResult, EvalRun, EvalSuite, Run, Tool, ToolExecution
from agentapp.refused import Refused
from approvals.models import Decision, Event, Rule
from tests.agentapp.evals.conftest import a_case
from tests.clerk_tools import EFFECTS
from tests.conftest import Clerk, call, calls, says
from tests.teams import Team
from tests.wire import DIALECTS, Answer

DIALECT = DIALECTS["openai"]


@pytest.fixture
def suite(clerk: Clerk) -> EvalSuite:
    return suites.create("desk", "What the clerk does.", "test")


def ran(suite: EvalSuite, *cases: Case, **more: Any) -> EvalRun:
    made = results.create(suite, cases, **more)
    assert not runner.go_on(made.pk, seconds=float("inf"))
    made.refresh_from_db()
    return made


def result(eval_run: EvalRun, case: str = "a-case") -> EvalResult:
    return EvalResult.objects.get(eval_run=eval_run, case=case, repeat=1)


PAY = [calls(call("a", "pay", account="ana", amount=5)), says("done")]
PAID: dict[str, Any] = {"tools": {"pay": {"result": "paid"}}, "script": PAY}


# --- Cases ---------------------------------------------------------------------------------------


def test_a_case_that_goes_as_it_should_passes_with_its_run_mocked(suite):
    case = a_case(
        script=[calls(call("a", "look_up", what="x")), says("The answer is 7.")],
        tools={"look_up": {"result": 7}},
        expect={
            "tools_called": ["look_up"],
            "tools_not_called": ["pay"],
            "calls": [{"tool": "look_up", "arguments": {"what": "x"}}],
            "final_status": "completed",
            "stop_reason": "completed",
            "answer_contains": ["answer is 7"],
            "steps": 2,
        },
    )
    made = ran(suite, case)
    found = result(made)
    assert (made.state, made.verdict, made.done, made.total) == ("finished", "passed", 1, 1)
    assert (found.verdict, found.reasons) == ("passed", [])
    assert found.run is not None
    assert found.run.is_mocked
    assert EFFECTS == []


def test_a_case_whose_run_fails_says_what_the_run_says(suite):
    case = a_case(repeats={"of": 2}, expect={"tools_called": ["look_up"]})
    Agent.objects.update(driver="tool_calling")
    made = ran(suite, case, model="nope")
    found = runner.outcomes(made)
    stopped = Run.objects.filter(eval_results__eval_run=made).first().stop_message
    assert stopped
    assert found[0].runs_failed == [f"the run failed: {stopped}"]
    assert found[0].reasons == ["expected tool call: look_up"]
    assert reporting.line(found[0]).splitlines()[1:] == [
        f"       the run failed: {stopped}", "       expected tool call: look_up",
    ]  # fmt: skip
    assert reporting.as_json(made, found)["cases"][0]["runs_failed"] == found[0].runs_failed
    assert f"the run failed: {stopped}" in reporting.junit(made, found)


def test_a_case_that_passes_because_its_run_fails_says_nothing_of_it(suite):
    Agent.objects.update(driver="tool_calling")
    made = ran(suite, a_case(expect={"final_status": "failed"}), model="nope")
    assert (made.verdict, runner.outcomes(made)[0].runs_failed) == ("passed", [])


def test_a_case_that_goes_otherwise_fails_and_says_why(suite):
    case = a_case(
        script=[calls(call("a", "look_up", what="x")), says("done")],
        tools={"look_up": {"result": 7}},
        expect={"tools_called": ["label"], "tools_not_called": ["look_up"], "stop_reason": "cost_limit"},
    )
    made = ran(suite, case)
    assert (made.verdict, result(made).reasons) == (
        "failed",
        [
            "expected tool call: label",
            "forbidden tool was called: look_up",
            "expected stop_reason cost_limit, got completed",
        ],
    )


@pytest.mark.parametrize(
    ("people", "expect"),
    [
        ([{"decide": "approve"}], {"tools_called": ["pay"], "final_status": "completed"}),
        (
            [{"decide": "edit", "arguments": {"amount": 3}}],
            {"calls": [{"tool": "pay", "arguments": {"amount": 3, "account": "ana"}}]},
        ),
        ([{"decide": "reject", "message": "No."}], {"tools_not_called": ["pay"], "final_status": "completed"}),
        ([{"decide": "reject", "message": "No.", "stop_run": True}], {"final_status": "refused"}),
        ([{"decide": "respond", "message": "Ask again."}], {"tools_not_called": ["pay"], "final_status": "completed"}),
        ([{"decide": "expire"}], {"tools_not_called": ["pay"], "final_status": "completed"}),
        ([{"decide": "none"}], {"tools_not_called": ["pay"], "final_status": "needs_human"}),
        ([], {"final_status": "needs_human"}),
        ([{"tool": "send", "decide": "approve"}], {"final_status": "needs_human"}),
    ],
)
def test_whoever_is_asked_decides_as_the_case_says(suite, people, expect):
    routing = {"routing": [{"tool": "pay", "verdict": "ask"}]}
    made = ran(suite, a_case(people=people, expect={**expect, **routing}, **PAID))
    assert result(made).reasons == []
    assert Decision.objects.filter(mocked=False).count() == 0
    # A case leaves nothing for anybody to do.
    assert not Run.objects.exclude(state__in=Run.FINAL).exists()


def test_an_edit_that_nobody_could_make_fails_the_case(suite):
    locked = a_case("locked", people=[{"decide": "edit", "arguments": {"account": "eve"}}], **PAID)
    unfit = a_case("unfit", people=[{"decide": "edit", "arguments": {"amount": "much"}}], **PAID)
    made = ran(suite, locked, unfit)
    assert result(made, "locked").reasons == ["nobody may edit account of pay"]
    assert result(made, "unfit").reasons[0].startswith("pay does not take what the edit makes: ")


def test_a_rule_that_forbids_or_allows_is_measured_at_the_gate(suite):
    Rule.objects.create(name="never", tool="pay", verdict="deny", order=1, condition="args.amount > 100.0")
    Rule.objects.create(name="labels", tool="label", verdict="allow", order=2)
    case = a_case(
        script=[
            calls(call("a", "pay", account="ana", amount=500), call("b", "label", text="x")),
            says("done"),
        ],
        tools={"pay": {"result": "paid"}, "label": {"result": "x"}},
        expect={
            "routing": [
                {"tool": "pay", "verdict": "deny", "rule": "never"},
                {"tool": "label", "verdict": "allow", "rule": "labels"},
                {"tool": "pay", "verdict": "deny", "arguments": {"amount": 500}},
            ],
            "tools_called": ["label"],
            "tools_not_called": ["pay"],
        },
    )
    made = ran(suite, case)
    assert result(made).reasons == []
    routed = made.metrics["approval_routing"]
    assert (routed["part"], routed["whole"]) == (3, 3), "also those that arguments tell apart, which are not kept"
    assert made.metrics["unauthorized_calls"] | {"low": 0, "high": 0} == {
        "part": 1, "whole": 2, "value": 0.5, "low": 0, "high": 0,
    }  # fmt: skip


def test_agents_that_are_asked_are_driven_and_decided_about_too(suite, clerk):
    team = Team(clerk)
    team.may_ask("refunds", says("never"))
    case = a_case(
        script=[calls(call("a", "ask_refunds", input="May we?")), says("done")],
        agents={"refunds": PAY},
        tools={"pay": {"result": "paid"}},
        people=[{"decide": "approve"}],
        expect={"tools_called": ["ask_refunds", "pay"], "final_status": "completed"},
    )
    made = ran(suite, case)
    assert result(made).reasons == []
    assert result(made).observed["calls"][1]["depth"] == 1


def test_a_case_is_repeated_and_passes_where_enough_repeats_do(suite):
    mocks = {"look_up": {"result": 1}}
    steady = a_case("steady", repeats={"of": 3, "needed": 2}, tools=mocks, expect={"no_tools": True})
    never = a_case("never", repeats={"of": 2, "needed": 1}, expect={"tools_called": ["look_up"]})
    made = ran(suite, steady, never)
    by_name = {outcome.case.name: outcome for outcome in runner.outcomes(made)}
    assert (by_name["steady"].verdict, by_name["steady"].passes) == ("passed", 3)
    assert (by_name["never"].verdict, by_name["never"].passes) == ("failed", 0)
    results.EvalResult.objects.filter(case="never", repeat=1).update(verdict="passed", reasons=[])
    assert runner.outcomes(made)[1].verdict == "passed"


def test_a_soft_case_that_fails_does_not_fail_the_eval_but_one_that_breaks_what_never_may_happen_does(suite, clerk):
    soft = a_case("soft", severity="soft", expect={"tools_called": ["look_up"]})
    made = ran(suite, soft)
    assert (made.verdict, result(made, "soft").verdict) == ("passed", "failed")
    found = runner.outcomes(made)
    observed = found[0].results[0].observed
    observed["calls"] = [
        {
            "tool": "pay", "executed": True, "status": "ok", "reason": "", "verdict": "deny", "rule": "", "asked": [],
            "step": 1, "depth": 0, "attempts": 1, "arguments_digest": "", "cost": 0, "broken": ["denied"],
        }
    ]  # fmt: skip
    assert runner.verdict_of(found, runner.measured(found)) == "failed"


def test_a_case_that_cannot_be_run_is_skipped_and_a_gate_that_is_skipped_fails_the_eval(suite):
    made = ran(suite, a_case("one", agent="nobody"), a_case("two", route="nowhere"), a_case("three"))
    assert (made.verdict, made.done) == ("failed", 3)
    assert result(made, "one").reasons == ["there is no agent named nobody"]
    assert result(made, "two").reasons == ["the agent clerk has no route named nowhere"]
    assert {r.verdict for r in made.results.exclude(case="three")} == {"skipped"}
    assert ran(suite, a_case("soft", agent="nobody", severity="soft")).verdict == "passed"


@pytest.mark.parametrize(("scope", "key"), [("all", ""), ("agent", "clerk"), ("tool", "pay")])
def test_a_case_that_a_kill_switch_stops_is_skipped(suite, mia, scope, key):
    actions.engage_switch(scope, key, "We move.", mia)
    script = [calls(call("p", "pay", account="ana", amount=20)), says("Paid.")]
    people = [{"tool": "pay", "decide": "approve"}]
    tools = {"pay": [{"result": "Paid."}]}
    case = a_case(script=script, people=people, tools=tools)
    kept = result(ran(suite, case))
    assert kept.verdict == "skipped"
    assert "was stopped by" in kept.reasons[0]
    assert kept.reasons[0].endswith("We move.")
    assert not Run.objects.exclude(state__in=Run.FINAL).exists()


def test_a_case_that_breaks_does_not_take_the_others_along(suite, monkeypatch):
    from agentapp.evals import driving

    def broken(run: Any) -> Any:
        raise KeyError("a bug")

    monkeypatch.setattr(driving, "observe", broken)
    made = ran(suite, a_case("one"), a_case("two"))
    assert (made.state, made.verdict) == ("finished", "failed")
    assert "the case broke (KeyError)" in result(made, "two").reasons[0]


def test_a_case_without_a_script_asks_the_model_and_waits_while_it_cannot_answer(suite, clerk, provider, monkeypatch):
    monkeypatch.setattr(loop, "MAX_BACKOFF_SECONDS", 0.05)
    Agent.objects.filter(pk=clerk.agent.pk).update(driver="tool_calling", model=DIALECT.model)
    provider.answer(Answer(DIALECT.error("Overloaded", "server_error"), status=503), Answer(DIALECT.reply("At last.")))
    made = ran(suite, a_case(script=None, expect={"final_status": "completed", "answer_contains": ["at last"]}))
    assert (result(made).reasons, len(provider.questions)) == ([], 2)
    # A failure of the case's provider counts against nobody outside it.
    assert Breaker.objects.count() == 0


@pytest.mark.parametrize(("needed", "verdict"), [(2, "passed"), (3, "failed")])
def test_of_repeats_that_go_different_ways_so_many_have_to_pass(suite, clerk, provider, needed, verdict):
    """A model that calls nothing the second time."""
    Agent.objects.filter(pk=clerk.agent.pk).update(driver="tool_calling", model=DIALECT.model)
    looks = DIALECT.reply("I look it up.", [("a", "look_up", {"what": "x"})])
    provider.answer(
        Answer(looks), Answer(DIALECT.reply("It is 7.")),
        Answer(DIALECT.reply("It is 8, I think.")),
        Answer(looks), Answer(DIALECT.reply("It is 7.")),
    )  # fmt: skip
    repeats = {"of": 3, "needed": needed}
    expect = {"tools_called": ["look_up"], "answer_contains": ["7"]}
    made = ran(suite, a_case(script=None, repeats=repeats, tools={"look_up": {"result": 7}}, expect=expect))
    reasons = ["expected tool call: look_up", "expected the answer to contain '7'"]
    told = list(made.results.order_by("repeat").values_list("verdict", "reasons"))
    assert told == [("passed", []), ("failed", reasons), ("passed", [])]
    [outcome] = runner.outcomes(made)
    assert (made.verdict, outcome.verdict, outcome.passes) == (verdict, verdict, 2)
    assert "2/3" in reporting.line(outcome)
    assert len({result.run_id for result in made.results.all()}) == 3
    figures = runner.measured([outcome])
    assert (figures.tool_selection.part, figures.tool_selection.whole) == (2, 3)


def test_a_model_that_is_named_is_asked_instead_of_the_script(suite, clerk, provider):
    Agent.objects.filter(pk=clerk.agent.pk).update(driver="tool_calling")
    provider.answer(Answer(DIALECT.reply("From the model.")))
    case = a_case(script=[says("From the script.")], expect={"answer_contains": ["from the model"]})
    made = ran(suite, case, model=DIALECT.model)
    assert (result(made).reasons, made.versions["models"]) == ([], {"clerk": DIALECT.model})


# --- What never may happen -----------------------------------------------------------------------


@pytest.fixture
def executed(suite) -> ToolExecution:
    """A call of a finished case that people approved and that ran."""
    made = ran(suite, a_case(people=[{"decide": "approve"}], **PAID))
    run = result(made).run
    assert run is not None
    return ToolExecution.objects.select_related("step").get(run=run)


def looked_at(execution: ToolExecution) -> tuple[str, ...]:
    from approvals.models import Approval

    return broken_by(execution, True, list(Approval.objects.filter(execution_id=execution.pk).order_by("created_at")))


def test_a_call_that_ran_as_it_was_approved_breaks_nothing(executed):
    assert looked_at(executed) == ()


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("ruling", {"verdict": "deny"}, ("denied",)),
        ("mocked", False, ("real",)),
        ("executed_text", '{"account":"eve","amount":5}', ("stale",)),
        ("name", "secret_tool", ("unauthorized",)),
    ],
)
def test_a_call_whose_row_says_otherwise_is_noticed(executed, column, value, expected):
    setattr(executed, column, value)
    assert looked_at(executed) == expected


def test_a_call_that_ran_under_a_request_that_was_rejected_superseded_or_used_too_late_is_noticed(executed):
    from approvals.models import Approval

    asked = Approval.objects.filter(execution_id=executed.pk)
    asked.update(used_at=timezone.now().replace(year=2099))
    assert looked_at(executed) == ("stale",)
    asked.update(state="superseded")
    assert looked_at(executed) == ("stale",)
    asked.update(state="rejected")
    assert looked_at(executed) == ("denied",)


def test_a_write_that_nothing_allowed_is_noticed(executed):
    executed.approval_id, executed.approval = None, None
    assert "unauthorized" in broken_by(executed, True, [])


@pytest.mark.parametrize(
    ("state", "reason", "expected"),
    [
        ("succeeded", "completed", "completed"),
        ("failed", "error", "failed"),
        ("stopped", "cost_limit", "stopped"),
        ("stopped", "approval_denied", "refused"),
        ("stopped", "approval_expired", "refused"),
        ("stopped", "blocked_by_hook", "refused"),
        ("cancelled", "user_requested", "stopped"),
        ("waiting", "", "needs_human"),
        ("paused", "", "needs_human"),
        ("queued", "", "failed"),
    ],
)
def test_how_a_run_ended_in_the_words_of_cases(state, reason, expected):
    assert final_status(Run(state=state, stop_reason=reason)) == expected


# --- Carrying out --------------------------------------------------------------------------------


def test_an_eval_is_carried_out_by_workers_a_slice_at_a_time_and_each_result_is_kept_once(suite, sam, monkeypatch):
    nudged: list[Any] = []
    monkeypatch.setattr(tasks.run_eval, "apply_async", lambda args, **_: nudged.append(args[0]))
    monkeypatch.setattr(runner, "SLICE_SECONDS", 0)
    for name in ("one", "two", "three"):
        suites.save_case(suite, a_case(name), "test")
    made = evaluating.start_eval(suite, sam)
    assert nudged == [str(made.pk)]
    monkeypatch.setattr(runner.go_on, "__defaults__", (0.0, None))
    for done in range(10):
        made.refresh_from_db()
        if made.is_final:
            break
        assert made.done <= done
        monkeypatch.setattr(runner.time, "monotonic", iter([0.0, 0.0, *[1.0] * 50]).__next__)
        tasks.run_eval(str(made.pk))
    monkeypatch.undo()
    assert (made.state, made.verdict, made.done) == ("finished", "passed", 3)
    assert made.results.count() == 3
    assert made.results.first().run.starter == sam
    assert [e.type for e in Event.objects.filter(chain=results.CHAIN).order_by("seq")][-2:] == [
        "eval.queued", "eval.finished",
    ]  # fmt: skip


def test_a_worker_that_is_told_to_end_leaves_an_eval_to_another_which_begins_its_case_anew(suite, monkeypatch):
    suites.save_case(suite, a_case("one", **PAID, people=[{"decide": "approve"}]), "test")
    suites.save_case(suite, a_case("two"), "test")
    made = results.create(suite, evaluating.chosen(suite))
    drive, drives = loop.drive, []

    def told_meanwhile(run_id):
        drives.append(run_id)
        assert len(drives) == 1, "it would take it up again and again"
        draining.begun.set()
        return drive(run_id)

    monkeypatch.setattr(draining, "begun", threading.Event())
    monkeypatch.setattr(loop, "drive", told_meanwhile)
    assert runner.go_on(made.pk, seconds=float("inf"))
    made.refresh_from_db()
    [begun] = Run.objects.all()
    assert (made.done, made.lease_until, drives, begun.state) == (0, None, [begun.pk], "cancelled")
    draining.begun.clear()
    monkeypatch.setattr(loop, "drive", drive)
    assert not runner.go_on(made.pk, seconds=float("inf"))
    made.refresh_from_db()
    assert (made.state, made.verdict, made.done) == ("finished", "passed", 2)


def test_nobody_else_takes_an_eval_that_is_held_and_the_sweep_finds_one_that_is_not(suite):
    made = results.create(suite, [a_case()])
    assert results.claim(made.pk) is not None
    assert results.claim(made.pk) is None
    assert not runner.go_on(made.pk)
    EvalRun.objects.update(created_at=timezone.now().replace(year=2020))
    assert results.due() == []
    EvalRun.objects.update(lease_until=timezone.now().replace(year=2020))
    assert results.due() == [made.pk]
    assert not runner.go_on(made.pk)
    assert results.due() == []


def test_an_eval_is_held_for_as_long_as_one_of_its_cases_takes(suite):
    case = a_case()
    made = results.claim(results.create(suite, [case]).pk)
    # As if a model had taken longer than the time an eval is leased for.
    EvalRun.objects.update(lease_until=timezone.now().replace(year=2020))
    driving.run_case(made, case, driving.Agents())
    assert results.claim(made.pk) is None


def test_an_eval_that_is_cancelled_keeps_what_it_has_and_takes_no_more(suite, sam):
    made = results.create(suite, [a_case()])
    claimed = results.claim(made.pk)
    assert claimed is not None
    assert evaluating.cancel_eval(made, sam)
    assert not results.keep(claimed, a_case(), 1, [], None)
    made.refresh_from_db()
    assert (made.state, made.results.count()) == ("cancelled", 0)
    assert not evaluating.cancel_eval(made, sam)


def test_running_and_ending_evals_needs_the_right_to_run_them(suite, dana):
    suites.save_case(suite, a_case(), "test")
    with pytest.raises(Refused, match="right to run evals"):
        evaluating.start_eval(suite, dana)
    with pytest.raises(Refused, match="right to run evals"):
        evaluating.cancel_eval(results.create(suite, [a_case()]), dana)


def test_an_eval_keeps_the_versions_of_everything_that_has_a_say(suite, clerk):
    first = ran(suite, a_case())
    assert first.versions["agents"].keys() == {"clerk"}
    assert "look_up" in first.versions["tools"]
    Rule.objects.create(name="new", tool="pay", verdict="deny", order=1)
    Agent.objects.filter(pk=clerk.agent.pk).update(instructions="Be kind.")
    Tool.objects.filter(name="look_up").update(approval_mode="always")
    second = ran(suite, a_case())
    assert compare(first, second).versions == {
        "agents": ("clerk",), "prompts": ("clerk",), "tools": ("look_up",), "rules": ("new",),
    }  # fmt: skip


def test_cases_are_run_as_they_stood_when_the_eval_was_started(suite):
    suites.save_case(suite, a_case(), "test")
    made = results.create(suite, evaluating.chosen(suite))
    suites.save_case(suite, a_case(expect={"tools_called": ["pay"]}), "test")
    runner.go_on(made.pk)
    assert result(made).verdict == "passed"


def test_cases_that_cannot_be_read_any_more_stop_no_page_and_no_worker(suite, sam):
    suites.save_case(suite, a_case(), "test")
    made = ran(suite, a_case())
    EvalRun.objects.update(planned=[{"document": {"name": "a-case", "of_before": 1}, "digest": "x"}])
    made.refresh_from_db()
    [outcome] = runner.outcomes(made)
    assert (outcome.case.name, outcome.verdict) == ("a-case", "passed")
    EvalRun.objects.update(state="running", lease_until=None, done=0)
    EvalResult.objects.all().delete()
    runner.go_on(made.pk)
    assert result(made).verdict == "skipped"
    EvalCase.objects.update(document={"name": "a-case"})
    with pytest.raises(Refused, match="can no longer be read"):
        evaluating.start_eval(suite, sam)


# --- Comparing -----------------------------------------------------------------------------------


def test_a_regression_is_named_with_its_reasons_and_what_went_otherwise(suite):
    case = a_case(people=[{"decide": "approve"}], expect={"routing": [{"tool": "pay", "verdict": "ask"}]}, **PAID)
    before = ran(suite, case, a_case("same"), a_case("gone"))
    Rule.objects.create(name="generous", tool="pay", verdict="allow", order=1)
    after = ran(suite, case, a_case("same"), a_case("fresh"))
    found = compare(before, after)
    assert found.counts == {"regressed": 1, "changed": 0, "new": 1, "gone": 1, "fixed": 0, "same": 1}
    [regressed] = found.of("regressed")
    assert (regressed.case, regressed.before, regressed.after) == ("a-case", "passed", "failed")
    assert regressed.reasons == ("pay: expected verdict ask, got allow",)
    assert regressed.what == (
        "passed 1 of 1, now 0 of 1",
        "pay: allowed instead of asked everybody who may decide",
        "pay: rule generous instead of none",
    )
    assert found.versions["rules"] == ("generous",)
    assert compare(after, before).counts["fixed"] == 1
    said = reporting.comparison(found)
    assert "a-case regressed\n       pay: expected verdict ask, got allow" in said
    assert "Other rules: generous" in said


# --- The command ---------------------------------------------------------------------------------


@pytest.fixture
def directory(tmp_path: Path, clerk: Clerk) -> Path:
    (tmp_path / "suite.yaml").write_text("{name: shop, defaults: {agent: clerk, kind: positive}}")
    case = {"name": "pays", "input": "Pay.", "people": [{"decide": "approve"}], **PAID}
    (tmp_path / "pays.json").write_text(json.dumps({**case, "expect": {"tools_called": ["pay"]}}))
    (tmp_path / "says.yaml").write_text(
        "{name: says, input: Hi., script: [{text: Hello}], severity: soft, expect: {answer_contains: [goodbye]}}"
    )
    return tmp_path


def command(*args: Any) -> str:
    out = StringIO()
    call_command("evals", *[str(arg) for arg in args], stdout=out)
    return out.getvalue()


def test_the_command_loads_and_runs_a_directory_and_says_what_came_of_it(directory):
    said = command("run", directory)
    assert "shop: 2 cases, 2 added." in said
    assert "ok   pays" in said
    assert "FAIL says" in said
    assert "expected the answer to contain 'goodbye'" in said
    assert ": passed. 1 passed, 1 failed." in said
    assert "Approval routing" in said


def test_the_command_fails_where_a_gate_fails_and_writes_junit_and_json(directory, tmp_path):
    command("run", directory)
    (directory / "says.yaml").write_text(
        "{name: says, input: Hi., script: [{text: Hello}], expect: {answer_contains: [goodbye]}}"
    )
    out, junit = StringIO(), tmp_path / "out.xml"
    with pytest.raises(CommandError) as failed:
        call_command(
            "evals", "run", str(directory), "--json", "--junit", str(junit), "--baseline", "latest", stdout=out
        )
    assert failed.value.returncode == 1
    told = json.loads(out.getvalue())
    assert (told["verdict"], told["suite"], len(told["cases"])) == ("failed", "shop", 2)
    assert [each["kind"] for each in told["comparison"]["cases"]] == ["changed"]
    suite = ElementTree.parse(junit).getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "0")
    assert suite.find("testcase[@name='says']/failure").get("message") == "expected the answer to contain 'goodbye'"


def test_an_eval_whose_command_is_stopped_is_over(directory, monkeypatch):
    def stopped(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "run_case", stopped)
    with pytest.raises(KeyboardInterrupt):
        command("run", directory)
    assert EvalRun.objects.get().state == EvalRun.State.CANCELLED


def test_the_command_runs_single_cases_and_lists_and_compares(directory):
    command("load", directory)
    assert "pays" not in command("run", "shop", "--case", "says")
    command("run", "shop")
    first, second = [run.reference for run in EvalRun.objects.order_by("created_at")]
    assert "pays is new" in command("compare", first, second)
    assert f"{second} passed" in command("list")
    with pytest.raises(CommandError, match="no case named other"):
        command("run", "shop", "--case", "other")
    with pytest.raises(CommandError, match="no suite named"):
        command("run", "elsewhere")
    with pytest.raises(CommandError, match="no agent named"):
        command("run", "shop", "--agent", "nobody")


def test_the_latest_eval_is_the_latest_of_the_same_cases(directory):
    command("run", directory)
    whole = EvalRun.objects.get()
    command("run", "shop", "--case", "pays")
    assert "1 new" not in command("run", "shop", "--baseline", "latest")
    assert EvalRun.objects.first().baseline == whole


def test_files_that_are_wrong_change_nothing(directory):
    command("load", directory)
    (directory / "says.yaml").write_text("{name: says}")
    with pytest.raises(CommandError, match=r"says\.yaml:1: input: Field required"):
        command("load", directory)
    with pytest.raises(CommandError, match=r"says\.yaml:1"):
        command("check", directory)
    assert EvalSuite.objects.get().cases.count() == 2
    (directory / "says.yaml").unlink()
    assert "1 removed" in command("load", directory)


def test_files_take_no_place_of_cases_that_people_have_written(directory):
    suite = suites.create("shop", "", "ada")
    EvalCase.objects.create(suite=suite, name="ours", document={}, created_at=timezone.now(), updated_at=timezone.now())
    with pytest.raises(CommandError, match="people have written cases of shop in the console"):
        command("load", directory)
    assert list(EvalCase.objects.values_list("name", flat=True)) == ["ours"]
