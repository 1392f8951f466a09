"""Forks a run that has ended: a new run goes on from one of its steps with something changed.

What the run did before that step counts as done: the model is told about it, and none of it runs again. What it did
later stays done too: the same act, if proposed again, is answered from the record. A fork says nothing in a
conversation.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User

from agentapp import agent_tools, auth
from agentapp.branching import Branch
from agentapp.descent import line_of
from agentapp.llm import ModelError
from agentapp.llm import settings as model_settings
from agentapp.llm.providers import access
from agentapp.models import ApiToken, Run, ToolExecution
from agentapp.recorded import RECORD
from agentapp.refused import Refused
from agentapp.starting import MAX_INPUT_CHARS, NewRun, ended_run, start_run, steps_to_begin_with
from agentapp.tools.arguments import effective
from agentapp.tools.schema import check_arguments
from agentapp.toolset import snapshot_of
from approvals import supposing
from approvals.digest import MalformedJSON, canonical, parse, storable_json
from approvals.masking import STILL_MASKED, with_masks

# What decides what a model says comes from the forked run. Everything else is as the agent is configured today.
_SAID = (
    "instructions", "driver", "driver_settings", "model", "model_settings", "parallel_tool_calls", "tool_choice",
    "reset_tool_choice", "message_compiler", "compiler_settings", "guidance",
)  # fmt: skip


@dataclass(frozen=True)
class Fork:
    """Where a run is forked, and what is changed. None: it stays as it was.

    With a `call` of the step, that call is proposed again with these arguments, and those before it count as done.
    """

    step: int = 1
    call: int | None = None
    arguments: dict[str, Any] | None = None
    input: str | None = None
    instructions: str | None = None
    model: str | None = None
    model_settings: dict[str, Any] | None = None
    sandbox: bool = False
    """Nothing may happen: the run's recorded results and people's decisions answer, and nobody is asked."""
    without_rules: Sequence[str] = ()
    """In a sandbox: names of rules to treat as not in force."""
    with_drafts: Sequence[str] = ()
    """In a sandbox: names of rules whose drafts to treat as in force."""


def fork_run(run_id: uuid.UUID, fork: Fork, user: User, request_key: str = "", token: ApiToken | None = None) -> Run:
    """Start a fork in the name of the person who asks. Once for each key."""
    if not auth.may_start(user):
        raise Refused("forbidden", "Forking a run needs the right to start runs.")
    found = forkable(run_id, user)
    if found.is_mocked and not fork.sandbox:
        said = "Nothing that this run did has happened, so it can only be forked in a sandbox."
        raise Refused("invalid", said, "sandbox")
    if not 1 <= fork.step <= steps_to_begin_with(found):
        raise Refused("invalid", f"The run cannot be forked from step {fork.step}.", "step")
    if fork.arguments is not None and fork.call is None:
        raise Refused("invalid", "Say which call of the step these arguments belong to.", "call")
    changed = _changed(found, fork)
    snapshot = snapshot_from(found) | {
        name: value for name, value in _given(fork).items() if name in changed and name != "input"
    }
    if fork.without_rules or fork.with_drafts:
        snapshot["rules"] = _rules(fork, user)
        changed["rules"] = canonical(snapshot["rules"])
    opening = _opening(found, fork, snapshot) if fork.call is not None else None
    if opening is not None:
        changed["arguments"] = opening["arguments"]
    given_input = found.input if fork.input is None else fork.input
    new = NewRun(
        agent=found.agent.name,
        input=given_input,
        route=found.route,
        customer=found.customer,
        metadata=found.metadata,
        script=_script(found),
        request_key=request_key,
        title="" if "input" in changed else found.title,
        retry_of=found.pk,
        steps_kept=fork.step - 1,
        mocks={RECORD: str(found.pk)} if fork.sandbox else None,
        branch=Branch(
            kind=Run.Branch.FORK,
            snapshot=snapshot,
            calls_kept=fork.call or 0,
            opening=opening,
            changed=changed,
            asked_in=found.conversation or found.asked_in,
        ),
    )
    return start_run(new, user, token)


def forkable(run_id: uuid.UUID, user: User) -> Run:
    """A run that this person may fork, with what was said before it. Raises Refused."""
    found = ended_run(run_id, user)
    conversation = found.conversation or found.asked_in
    if conversation is not None and not auth.may_join(user, conversation):
        raise Refused("forbidden", "What was said before this run belongs to somebody else's conversation.")
    if any(run.erased_at is not None for run in line_of(found)):
        raise Refused("invalid", "A run that this one went on from has been erased.")
    return found


def snapshot_from(found: Run) -> dict[str, Any]:
    """What the model was told then, under today's limits: only those of its tools that the agent still has."""
    then, today = found.agent_snapshot, snapshot_of(found.agent)
    said = {name: then[name] for name in _SAID if name in then}
    kept = {name: value for name, value in today.items() if name not in _SAID}
    routes = {
        name: sorted(set(tools) & set(then["routes"].get(name, tools))) for name, tools in today["routes"].items()
    }
    return {**kept, **said, "tools": sorted(set(today["tools"]) & set(then["tools"])), "routes": routes}


def proposal_of(found: Run, step: int, call: int) -> ToolExecution:
    """A call that can be proposed again with other arguments. Raises Refused."""
    execution = (
        found.executions.filter(step__number=step, index=call).select_related("tool__source", "step", "run").first()
    )
    if execution is None:
        raise Refused("invalid", f"Step {step} has no call {call}.", "call")
    if execution.tool is None or execution.step.error:
        raise Refused("invalid", "This call names no tool, so it has no arguments to fill in.", "call")
    return execution


def _rules(fork: Fork, user: User) -> dict[str, Any]:
    """Other rules than those in force. Raises Refused: a real run has none."""
    if not fork.sandbox:
        said = "A real run obeys the rules in force. Other rules can only be tried in a sandbox."
        raise Refused("invalid", said, "sandbox")
    if not auth.may_suppose_rules(user):
        raise Refused("forbidden", "Trying other rules needs the right to view rules.")
    try:
        return supposing.supposed(fork.without_rules, fork.with_drafts)
    except supposing.Unknown as unknown:
        raise Refused("invalid", str(unknown), "with_drafts" if unknown.is_draft else "without_rules") from unknown


def _script(found: Run) -> list[dict[str, Any]] | None:
    """What stands in for a model's replies in a scripted run. A replay has no script of its own and asks no model."""
    while found.branch == Run.Branch.REPLAY and found.retry_of is not None:
        found = found.retry_of
    return found.script


def _given(fork: Fork) -> dict[str, Any]:
    given = {name: getattr(fork, name) for name in ("input", "instructions", "model", "model_settings")}
    return {name: storable_json(value) for name, value in given.items() if value is not None}


def _changed(found: Run, fork: Fork) -> dict[str, str]:
    """What differs from the forked run, as texts. Raises Refused."""
    was = {"input": found.input, **found.agent_snapshot}
    changed = {name: value for name, value in _given(fork).items() if value != was.get(name)}
    if len(changed.get("instructions", "")) > MAX_INPUT_CHARS:
        raise Refused("invalid", f"The instructions are longer than {MAX_INPUT_CHARS} characters.", "instructions")
    if "model" in changed:
        _check_model(changed["model"])
    if problems := model_settings.problems(changed.get("model_settings", {})):
        raise Refused("invalid", problems[0], "settings", wrong=[("settings", problem) for problem in problems])
    return {name: value if isinstance(value, str) else canonical(value) for name, value in changed.items()}


def _check_model(name: str) -> None:
    try:
        access(name)
    except ModelError as error:
        if error.code == "unknown_model":  # only the worker needs the keys
            raise Refused("invalid", str(error), "model") from error


def _opening(found: Run, fork: Fork, snapshot: dict[str, Any]) -> dict[str, Any]:
    """The call that the fork begins with. Raises Refused if it could not be proposed today."""
    assert fork.call is not None
    execution = proposal_of(found, fork.step, fork.call)
    tool = execution.tool
    assert tool is not None
    was = execution.args if isinstance(execution.args, dict) else {}
    arguments = read_arguments(execution) if fork.arguments is None else fork.arguments
    offered = tool.name in snapshot["tools"] or agent_tools.asks_agent(tool)
    if not offered or not tool.is_in_use:
        raise Refused("invalid", f"This agent can no longer call {tool.name}.", "call")
    if with_masks(arguments):
        raise Refused("invalid_arguments", STILL_MASKED, "args")
    try:
        text = canonical(arguments)
        problems = check_arguments(tool.input_schema, effective(tool, arguments))
    except ValueError as error:
        raise Refused("invalid_arguments", str(error), "args") from error
    if problems:
        raise Refused.of_arguments([(problem.field, problem.sentence) for problem in problems])
    return {
        "text": "" if fork.call else execution.step.text,
        "id": execution.call_id,
        "name": tool.name,
        "arguments": text,
        "typed": {name: value for name, value in arguments.items() if was.get(name) != value},
    }


def read_arguments(execution: ToolExecution) -> dict[str, Any]:
    """The arguments of a call as proposed, without the secret ones, which must be given again."""
    try:
        arguments = parse(execution.arguments_text or "{}")
    except MalformedJSON:
        return {}
    secret = execution.all_secret_fields
    return _without(arguments, set(secret)) if isinstance(arguments, dict) else {}


def _without(value: Any, names: set[str]) -> Any:
    if isinstance(value, dict):
        return {name: _without(item, names) for name, item in value.items() if name not in names}
    return [_without(item, names) for item in value] if isinstance(value, list) else value
