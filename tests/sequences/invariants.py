"""What holds whatever happened, read from the rows, the ledger and the world's record."""

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from agentapp import actions, agent_tools, switches
from agentapp.compilers import compile_messages, load_earlier
from agentapp.messages import AssistantMessage, ChatMessage, ToolMessage
from agentapp.models import Run, ToolExecution
from agentapp.reasons import Reason
from agentapp.transcript import load_steps
from approvals import ledger, sealed
from approvals.models import Approval, Decision, DecisionType, Event
from tests.sequences import hooks, wires
from tests.sequences import world as the_world
from tests.sequences.scene import Scene
from tests.two_views import disagreements
from tests.wire import ProviderServer

WAITING, UNKNOWN = ToolExecution.State.WAITING, ToolExecution.State.OUTCOME_UNKNOWN


def check_rest(scene: Scene) -> None:
    """After everything came to rest: a run that is not over waits for something, and for something that exists."""
    runs = list(Run.objects.select_related("parent", "agent").prefetch_related("executions"))
    ended = [run.pk for run in runs if run.is_final]
    asked = Approval.objects.filter(run_id__in=ended, used_at__isnull=True, state__in=Approval.OPEN)
    assert not asked.exists(), "people are asked about a run that has ended"
    for run in runs:
        assert run.is_final or run.state in (Run.State.WAITING, Run.State.PAUSED), f"at rest a run is {run.state}"
        assert run.lease_token is None
        assert (run.stop_reason != "") == run.is_final
        calls = list(run.executions.all())
        if run.is_final:
            assert all(call.is_answered or call.state == UNKNOWN for call in calls), "an ended run has open calls"
        if run.parent is not None and not run.is_final:
            assert not run.parent.is_final, "a run works on for one that has ended"
        if run.state == Run.State.WAITING:
            assert _awaited(run, calls), f"a run waits for {run.waiting_for}, which is not there"
        for call in calls:
            found_out = call.reason != Reason.OUTCOME_UNKNOWN or call.outcome_note != "" or not call.consequential
            assert call.state == UNKNOWN or found_out, "a call that nobody knows of was answered"
        _check_ending(run)
        if run.parent is not None:
            _check_lineage(scene.root, run, run.parent)


def _awaited(run: Run, calls: Sequence[ToolExecution]) -> bool:
    """Whether what a run waits for can still come."""
    if run.waiting_for == Run.WaitingFor.APPROVAL:
        asked = Approval.objects.filter(execution__in=calls, execution__state=WAITING, used_at__isnull=True)
        going = run.children.exclude(state__in=Run.FINAL)
        held = asked.filter(state__in=Approval.DECIDED).exists() and run.wake_at is not None
        return asked.filter(state="pending").exists() or held or going.exists()
    if run.waiting_for == Run.WaitingFor.OUTCOME:
        return any(call.state == UNKNOWN for call in calls)
    if run.waiting_for == Run.WaitingFor.SUBAGENT:
        return run.children.exclude(state__in=Run.FINAL).exists()
    if run.waiting_for == Run.WaitingFor.SWITCH:
        return bool(switches.holding(run))
    return run.agent_snapshot["on_budget"] == "ask"


def _check_ending(run: Run) -> None:
    """A run ends because of people, tools, hooks, limits or its model, never because of a fault of the loop."""
    assert run.stop_source not in ("loop", "history"), run.stop_message


def _check_lineage(root: Run, child: Run, parent: Run) -> None:
    asked_by, asks = ToolExecution.objects.get(subrun=child), parent.agent_snapshot
    assert (asked_by.run_id, asked_by.name) == (parent.pk, agent_tools.tool_name(child.agent.name))
    assert child.depth == parent.depth + 1
    assert child.depth <= root.agent_snapshot["max_depth"], "deeper than agents may ask"
    assert agent_tools.may_ask(asks["name"], asks["subagents"], asks["denied_subagents"], child.agent.name)


def check_all(scene: Scene, provider: ProviderServer | None = None) -> None:
    """When everything has ended, and what hung has had its late effect."""
    assert not scene.world.wrongs, scene.world.wrongs
    events = list(Event.objects.filter(run_id__in=Run.objects.values("pk")).order_by("chain", "seq"))
    assert ledger.verify()[1] is None, "the ledger is broken"
    starts = _starts(events)
    _check_starts(scene, starts, events)
    _check_decisions(scene)
    _check_acts(scene, starts)
    _check_hooks()
    for execution in ToolExecution.objects.filter(consequential=True):
        assert disagreements(execution) == [], "what is on record is not what can run"
    for run in Run.objects.order_by("pk"):
        _check_history(scene, run, provider)


def _starts(events: Sequence[Event]) -> dict[str, list[dict[str, Any]]]:
    """By call: each time it was allowed to run."""
    found = defaultdict(list)
    for event in events:
        if event.type == "tool_call.started":
            found[event.data["execution"]].append(event.data)
    return found


def _check_starts(scene: Scene, starts: dict[str, list[dict[str, Any]]], events: Sequence[Event]) -> None:
    """A consequential call ran under an approval of its exact bytes, used once, or under a rule that names it."""
    used = Counter(event.data["approval"] for event in events if event.type == "approval.used")
    assert all(count == 1 for count in used.values()), "an approval was used twice"
    told = Counter(data["approval"] for each in starts.values() for data in each if data.get("approval"))
    assert all(count == 1 for count in told.values()), "an approval let two calls run"
    approvals = {str(approval.pk): approval for approval in Approval.objects.all()}
    for execution in ToolExecution.objects.all():
        begun = starts.get(str(execution.pk), [])
        assert execution.started_at is None or begun, "a call ran that the ledger does not know of"
        if execution.name in the_world.WRITES:
            assert execution.consequential or not begun, "a write ran as a read"
        for data in begun if execution.consequential else ():
            if not data.get("approval"):
                assert (data["allowed_by"], execution.name) in scene.allowed, f"{execution.name} ran unapproved"
                continue
            approval = approvals[data["approval"]]
            assert approval.state == Approval.State.USED, f"a call ran under an approval that is {approval.state}"
            assert approval.used_at is not None
            assert used[data["approval"]] == 1
            assert approval.execution_id == execution.pk, "a call ran under another's approval"
            assert data["executed_digest"] == sealed.digest_of(approval.final_arguments_text, execution.salt), (
                "other bytes ran than approved"
            )


def _check_decisions(scene: Scene) -> None:
    """Behind a used approval stand as many people as it needed, and never the run's starter."""
    yes = (DecisionType.APPROVE, DecisionType.EDIT)
    assert not Decision.objects.filter(user=scene.sam).exists(), "who started a run decided about it"
    for approval in Approval.objects.filter(state=Approval.State.USED).prefetch_related("decisions"):
        counted = [decision for decision in approval.decisions.all() if decision.undone_at is None]
        assert {decision.type for decision in counted} <= set(yes), "a call ran although somebody said no"
        assert len({decision.user_id for decision in counted}) >= approval.approvals_needed, "too few people approved"
        assert {decision.arguments_text for decision in counted} == {approval.final_arguments_text}


def _check_acts(scene: Scene, starts: dict[str, list[dict[str, Any]]]) -> None:
    """The world records only acts of calls, with the approved bytes, at most as often as each was let run."""
    rows = defaultdict(list)
    for execution in ToolExecution.objects.select_related("step"):
        rows[execution.name, (str(execution.run_id), execution.step.number, execution.call_id)].append(execution)
    acts = Counter((act.tool, act.place) for act in scene.world.acts if act.tool in the_world.WRITES)
    for (name, place), count in acts.items():
        calls = rows[name, place]
        begun = sum(len(starts.get(str(call.pk), ())) for call in calls)
        assert count <= begun, f"{name} acted {count} times and was let run {begun} times"
    keys = Counter(act.key for act in scene.world.acts if act.tool in the_world.TAKE_KEYS)
    assert all(key and count == 1 for key, count in keys.items()), "one key, two acts"
    approved = defaultdict(list)
    for execution_id, text in Approval.objects.filter(state="used").values_list("execution_id", "final_arguments_text"):
        approved[execution_id].append(json.loads(text))
    for act in scene.world.acts:
        if act.tool in the_world.WRITES:
            assert act.key, f"{act.tool} acted without a key"
            allowed = [arguments for call in rows[act.tool, act.place] for arguments in approved[call.pk]]
            allowed += [call.args for call in rows[act.tool, act.place] if call.allowed_by]
            assert act.arguments in allowed, f"{act.tool} acted with {act.arguments}, which nobody approved"


def _check_hooks() -> None:
    """A call that a hook blocks or answers does not run; a faulty hook ends its run, and not as a success."""
    for deed, point, context in hooks.DONE:
        run = Run.objects.get(pk=context.run.id)
        if deed in ("block", "answer") and point == "before_tool_use":
            rows = ToolExecution.objects.filter(run=run, step__number=context.step, name=context.name)
            mine = [row for row in rows if not row.proposed_name and row.call_id == context.call_id]
            assert not any(row.started_at for row in mine), f"a call ran that a hook did {deed}"
        if deed in ("bug", "wrong_type", "not_json") and point not in hooks.ENDINGS:
            assert run.state != Run.State.SUCCEEDED, f"a hook failed at {point}, and the run succeeded"
        if deed == "forbidden":
            noted = Event.objects.filter(run_id=run.pk, type="hook.contract_violated").exists()
            contract = run.agent_snapshot["hook_contract"]
            assert noted == (contract == "diagnostics")
            if contract == "strict" and point not in hooks.ENDINGS:
                assert run.state != Run.State.SUCCEEDED, f"a hook broke its contract at {point}"


def _check_history(scene: Scene, run: Run, provider: ProviderServer | None) -> None:
    """What a model would be sent next: every call once, its answer right behind it, in the calls' order."""
    if run.pk == scene.root.pk:
        # The next run of the conversation reads what this one did, including unknown outcomes.
        following = actions.NewRun(agent="clerk", input="And?", conversation="desk", script=[{}])
        run = actions.start_run(following, scene.sam)
    elif ToolExecution.objects.filter(run=run, state=UNKNOWN).exists():
        return
    messages = compile_messages(run, load_earlier(run), load_steps(run))
    declared = [call for message in messages if isinstance(message, AssistantMessage) for call in message.tool_calls]
    read = run if run.parent_id else scene.root
    asked = [call for rows in load_steps(read) if not rows.step.error for call in rows.executions]
    assert len(declared) == len(asked), "a call is missing, or there twice"
    _check_order(messages)
    if provider is None:
        wires.check_conversions(messages)
    else:
        wires.check(provider, messages)


def _check_order(messages: Sequence[ChatMessage]) -> None:
    declared: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            assert declared, "an answer without its call"
            assert message.call_id == declared.pop(0)
            continue
        assert not declared, "a call without its answer"
        if isinstance(message, AssistantMessage):
            declared = [call.id for call in message.tool_calls]
    assert not declared, "a call without its answer"
