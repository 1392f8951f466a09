"""Starts runs, and tries them again."""

import uuid
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import CharField

from agentapp import auth, conversations, open_runs, runs, starters, tasks, turns
from agentapp.branching import Branch
from agentapp.considered import GUIDED
from agentapp.mocks import MocksError, check_mocks
from agentapp.models import Agent, ApiToken, Conversation, Run
from agentapp.refused import Refused
from agentapp.script import ScriptError, check_script
from agentapp.takeover import changed_meanwhile, conversation_of, key_reused, same_message
from agentapp.toolset import snapshot_of
from agentapp.trace_context import read_traceparent
from approvals import ledger
from approvals.detectors import shortened
from approvals.digest import canonical, sha256, storable
from approvals.prepared import Given, Prepared

MAX_INPUT_CHARS = 100_000
ERASED_SINCE = "The input of this run has been erased."

_NAMED = Prepared(
    lambda: (
        Agent.objects.filter(name=Given("name", CharField()), enabled=True)
        .order_by()
        .annotate(keeps_tools=starters.keeps_tools())
    )
)


@dataclass(frozen=True)
class NewRun:
    """The request to start a run, as received."""

    agent: str
    input: str
    route: str = ""
    customer: str = ""
    conversation: str = ""
    conversation_version: int | None = None
    metadata: dict[str, Any] | None = None
    script: list[Any] | None = None
    request_key: str = ""
    traceparent: str = ""
    """The caller's place in its own trace."""
    title: str = ""
    """What people call the run; if not given, the first line of its input."""
    retry_of: uuid.UUID | None = None
    """A run that this one tries again; `steps_kept` of its steps count as done."""
    steps_kept: int = 0
    branch: Branch | None = None
    """Makes it a fork or a replay of that run, instead of another try."""
    mocks: dict[str, Any] | None = None
    """What answers its calls, so that it reaches no tool and nobody is asked. `mocks` describes the format."""
    follows: uuid.UUID | None = None
    """A run whose conversation this one continues. If that run has none, one begins with it."""


@dataclass(frozen=True)
class Started:
    """A run, and whether it had already been started with the same key.

    `kept`: a person has taken over or is wanted, and the message waits for them; no other run was started.
    """

    run: Run
    repeated: bool = False
    kept: bool = False


def start_run(new: NewRun, user: User, token: ApiToken | None = None) -> Run:
    """Start a run, or return the one this person started before with the same key and the same request."""
    return start_run_once(new, user, token).run


def start_run_once(new: NewRun, user: User, token: ApiToken | None = None) -> Started:
    """`start_run`, for callers that distinguish a repeat from a start."""
    invents_mocks = new.mocks is not None and new.branch is None
    if invents_mocks and not auth.may_mock(user):
        raise Refused("forbidden", "Starting mocked runs needs the right to run evals.")
    if not invents_mocks and not auth.may_start(user):
        raise Refused("forbidden", "Starting runs needs the right to start runs.")
    digest = sha256(canonical(_request(new)))
    if new.request_key:
        earlier = _earlier(new, user, digest)
        if earlier is not None:
            return earlier
    agent = _agent(new)
    _check_new_run(new, agent)
    # Normalised, because erasing a customer, or adding up what is done for one, looks for the exact name.
    new = replace(new, customer=storable(new.customer).strip())
    try:
        with ledger.transaction():
            return _create_run(new, agent, user, token, digest)
    except IntegrityError:
        # Two requests with one key at once: the first has created the run.
        earlier = _earlier(new, user, digest) if new.request_key else None
        if earlier is None:
            raise
        return earlier


def retry_run(
    run_id: uuid.UUID, user: User, first: int = 1, request_key: str = "", token: ApiToken | None = None
) -> Run:
    """Start a new run with the input of an ended one, for the person who asks, with today's configuration.

    What the ended run did before its step `first` counts as done: the model is told of it, and none of it runs again.
    `first` may be the step that the run did not reach, if its last step asked for calls.
    """
    found = ended_run(run_id, user)
    if (refused := _not_again(found)) is not None:
        raise refused
    if not 1 <= first <= steps_to_begin_with(found):
        raise Refused("invalid", f"The run cannot be tried again from step {first}.", "first")
    new = NewRun(
        agent=found.agent.name,
        input=found.input,
        route=found.route,
        customer=found.customer,
        conversation=found.conversation.key if found.conversation else "",
        metadata=found.metadata,
        script=found.script,
        request_key=request_key,
        title=found.title,
        retry_of=found.pk,
        steps_kept=first - 1,
    )
    return start_run(new, user, token)


def ended_run(run_id: uuid.UUID, user: User) -> Run:
    """A run that this person may see and from which another can begin. Raises Refused."""
    related = ("agent", "conversation", "asked_in", "retry_of")
    found = auth.visible_runs(user).select_related(*related).filter(pk=run_id).first()
    if found is None:
        raise Refused("not_found", "There is no such run.")
    if (refused := _not_from(found)) is not None:
        raise refused
    return found


def may_begin_from(user: User, run: Run) -> bool:
    """Whether this person, who may see the run, may start another from it: a fork, a replay or another try."""
    return _not_from(run) is None and auth.may_start(user)


def may_try_again(user: User, run: Run) -> bool:
    """Whether this person, who may see the run, may try it again."""
    return _not_again(run) is None and may_begin_from(user, run)


def _not_from(run: Run) -> Refused | None:
    """Why no other run can begin from this one. None: one can."""
    if not run.is_final:
        return Refused("not_ended", "The run has not ended. Pause it, take it over, or cancel it.")
    if run.erased_at is not None:
        return Refused("invalid", ERASED_SINCE)
    if run.parent_id is not None:
        return Refused("invalid", "Another run asked for this one. Try that one again.")
    if run.undoes_id is not None:
        return Refused("invalid", "This run takes a call back. If it did not succeed, ask for that again at the call.")
    if run.is_trial:
        return Refused("invalid", "This run tried one call. Try it again on the page of its tool.")
    return None


def _not_again(run: Run) -> Refused | None:
    """Why a run from which others can begin cannot be tried again. None: it can be."""
    if run.branch:
        return Refused("invalid", "This run is a fork or a replay of another. Fork it, or try the other one again.")
    if run.is_mocked:
        return Refused("invalid", "This run was mocked. Nothing that it did really happened. Run its case again.")
    return None


def steps_to_begin_with(run: Run) -> int:
    """How many steps another run can begin from: the existing ones, and the one that would have come next."""
    went_on = run.executions.filter(step__number=run.step_count).exists()
    return max(1, run.step_count + went_on)


def _agent(new: NewRun) -> Agent:
    agent = _NAMED.first(name=new.agent)
    if agent is None:
        raise Refused("unknown_agent", f"There is no agent named {new.agent!r}.", "agent")
    return agent


def _check_new_run(new: NewRun, agent: Agent) -> None:
    if not new.input.strip():
        raise Refused("invalid", "The input is empty.", "input")
    if len(new.input) > MAX_INPUT_CHARS:
        raise Refused("invalid", f"The input is longer than {MAX_INPUT_CHARS} characters.", "input")
    if new.conversation_version is not None and not (new.conversation or new.follows):
        raise Refused("invalid", "A version belongs to a conversation: name it too.", "conversation_version")
    if new.route and not agent.routes.filter(name=new.route).exists():
        raise Refused("unknown_route", f"The agent {agent.name!r} has no route named {new.route!r}.", "route")
    if new.mocks is not None and new.branch is None:
        _check_mocks(new)
    if new.script is not None and new.mocks is None and not settings.ALLOW_SCRIPTED_RUNS:
        raise Refused("forbidden", "Scripted runs are switched off here (ALLOW_SCRIPTED_RUNS).", "script")
    if new.script is not None:
        try:
            check_script(new.script, is_guided=agent.driver == GUIDED)
        except ScriptError as error:
            raise Refused("invalid", str(error), error.field) from error


def check_starter(agent: Agent, route: str, user: User) -> None:
    """Refuse before a model is asked: raises Refused. What changes later is checked before each call."""
    if kept := starters.barred_from(agent, route, user):
        why = f"{agent.name} has tools that only other people's runs may call: {', '.join(kept)}."
        raise Refused("forbidden", why, "agent")


def _check_mocks(new: NewRun) -> None:
    if new.conversation or new.follows is not None or new.retry_of is not None:
        raise Refused("invalid", "A mocked run cannot be in a conversation, and cannot continue another run.", "mocks")
    try:
        check_mocks(new.mocks)
    except MocksError as error:
        raise Refused("invalid", str(error), "mocks") from error


def _create_run(new: NewRun, agent: Agent, user: User, token: ApiToken | None, digest: str) -> Started:
    text = storable(new.input)
    # Held until this run exists: erasing that run then finds the one started from it, or came first. Runs are locked
    # before conversations.
    source = runs.lock(new.retry_of) if new.retry_of is not None else None
    if new.retry_of is not None and (source is None or source.erased_at is not None):
        raise Refused("invalid", ERASED_SINCE)
    conversation = None
    if new.follows is not None:
        conversation = conversation_of(new.follows, user)
    elif new.conversation:
        conversation = conversations.find_or_open(agent, storable(new.conversation), new.customer)
    if conversation is not None:
        _check_goes_on_in(conversation, new, user)
    start = runs.Start(
        agent=agent,
        agent_snapshot=dict(new.branch.snapshot) if new.branch else snapshot_of(agent),
        input=text,
        title=_title(storable(new.title) or text),
        starter=user,
        token=token,
        route=new.route,
        customer=new.customer,
        conversation=conversation,
        metadata=new.metadata,
        script=new.script,
        mocks=new.mocks,
        request_key=new.request_key,
        request_digest=digest,
        traceparent=read_traceparent(new.traceparent),
        retry_of=source,
        steps_kept=new.steps_kept,
        branch=new.branch,
    )
    via = f"token {token.name}" if token else ""
    if conversation is None:
        if new.mocks is None:
            check_starter(agent, new.route, user)
            open_runs.limit(user)
        started = Started(runs.create(start, via))
    else:
        turn = turns.lock(conversation, agent)
        # The same request may have come in twice: what the other started, or left for a person, is stored by now.
        if new.request_key and (earlier := _earlier(new, user, digest)) is not None:
            return earlier
        # A message that a person answers starts nothing, and a run that replaces another is not one more.
        if turn.begins_a_run:
            check_starter(agent, new.route, user)
        if turn.begins_one_more:
            open_runs.limit(user)
        try:
            taken = turns.take(start, turn, via, new.conversation_version)
        except conversations.Changed as changed:
            raise changed_meanwhile(changed) from changed
        started = Started(taken.run, kept=taken.kept)
        _check_nobody_elses(conversation, new)
        conversations.name_customer(conversation.pk, new.customer)
    transaction.on_commit(partial(tasks.nudge, started.run.pk), robust=True)
    return started


def _check_goes_on_in(conversation: Conversation, new: NewRun, user: User) -> None:
    if not auth.may_join(user, conversation):
        raise Refused("forbidden", "This conversation belongs to somebody else.", "conversation")
    # Otherwise one customer would be answered from another's words, and asked to confirm what is done for the other.
    if new.customer and conversation.customer.strip() not in ("", new.customer):
        raise _with_another_customer()


def _check_nobody_elses(conversation: Conversation, new: NewRun) -> None:
    """The same check for a conversation that names no customer, by whose messages it has. The caller holds its lock."""
    if not new.customer or conversation.customer:
        return
    said = Run.objects.filter(messages__conversation=conversation).exclude(customer__in=("", new.customer))
    if any(name.strip() != new.customer for name in said.values_list("customer", flat=True).distinct()):
        raise _with_another_customer()


def _with_another_customer() -> Refused:
    return Refused("conversation_exists", "A conversation with this name belongs to another customer.", "conversation")


def _request(new: NewRun) -> dict[str, Any]:
    return {
        "agent": new.agent,
        "input": storable(new.input),
        "route": new.route,
        "customer": new.customer,
        "conversation": new.conversation,
        # Left out if not given, so that older requests keep their digest.
        **({} if new.conversation_version is None else {"conversation_version": new.conversation_version}),
        **({} if new.retry_of is None else {"retry_of": str(new.retry_of), "steps_kept": new.steps_kept}),
        **({} if new.branch is None else {"branch": {**new.branch.wanted, "mocked": new.mocks is not None}}),
        **({} if new.follows is None else {"follows": str(new.follows)}),
        # The mocks of a branch come from the record.
        **({} if new.mocks is None or new.branch is not None else {"mocks": new.mocks}),
        "metadata": new.metadata,
        "script": new.script,
    }


def _earlier(new: NewRun, user: User, digest: str) -> Started | None:
    """What this person's key did before: it started a run, or left a message for the person who had taken over."""
    earlier = Run.objects.filter(starter=user, request_key=new.request_key).first()
    if earlier is None:
        kept = conversations.written(user, new.request_key)
        if kept is None or kept.run is None:
            return None
        same_message(kept, new.input, kept.run)
        # The same words in another conversation are a different message, which must not be lost.
        if not _goes_on_in(new, kept.conversation):
            raise key_reused()
        return Started(kept.run, repeated=True, kept=True)
    if earlier.request_digest != digest:
        raise key_reused()
    return Started(earlier, repeated=True)


def _goes_on_in(new: NewRun, conversation: Conversation) -> bool:
    if new.follows is not None:
        return Run.objects.filter(pk=new.follows, conversation=conversation).exists()
    return (new.agent, storable(new.conversation)) == (conversation.agent.name, conversation.key)


def _title(text: str) -> str:
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return shortened(first, 120)
