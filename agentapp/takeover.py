"""What people can do to speak in the agent's place: take over, write to the customer, hand back.

Rows are locked in the usual order: runs from the root down, then their conversation.
"""

import uuid
from functools import partial
from typing import NamedTuple

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from agentapp import auth, conversations, lineage, runs, subagents, tasks
from agentapp.models import ApiToken, Conversation, Message, Run
from agentapp.refused import Refused
from approvals import decisions, ledger, plans
from approvals.detectors import without_secrets
from approvals.digest import storable
from approvals.sealed import ERASED

MAX_TEXT_CHARS = 100_000
TAKEN_OVER = "A person has taken the run over."
_NO_RIGHT = (
    "To take a run over you need the right to pause runs, or must be asked to decide about one of its calls. If a "
    "person is wanted, the right to decide is enough."
)


class Written(NamedTuple):
    message: Message
    repeated: bool
    """Whether it had already been written with the same key."""


def take_over_run(run_id: uuid.UUID, user: User, token: ApiToken | None = None) -> Run:
    """Speak in the agent's place: the run is paused as soon as its current call is done.

    Its requests stay open for others. The person who took over may never decide about the run's calls, and neither may
    the person who made the `token` used for it. An ended run is taken over for what its customer says next. Taking over
    twice has no further effect.
    """
    with ledger.transaction():
        run = _locked(run_id, user)
        if run.taken_over_by_id == user.pk:
            return run
        if not auth.may_take_over(user, run):
            raise Refused("forbidden", _NO_RIGHT)
        if run.parent_id is not None:
            raise Refused("part_of_a_run", "Another run asked for this one. Take that one over.")
        below = subagents.below(run)
        conversation = _conversation(run, user)
        _check_free(run, conversation)
        actor = ledger.actor_of(user)
        runs.take_over(run, user)
        runs.put_aside(run, actor)
        for child in below:
            if not child.is_aside:
                runs.take_over(child, user)
                runs.put_aside(child, actor)
        taken = [run, *below]
        issuer = token.issued_by if token is not None else None
        for person in filter(None, (user, issuer)):
            for row in taken:
                runs.bar(row, [person.pk])
            decisions.exclude([row.pk for row in taken], person)
        plans.end([row.pk for row in taken], TAKEN_OVER, actor)
        conversations.set_mode(conversation, Conversation.Mode.MANUAL, run, actor)
    run.refresh_from_db()
    return run


def hand_back_run(run_id: uuid.UUID, user: User) -> Run:
    """Let the agent speak again. A paused run goes on, and is told what was said meanwhile."""
    with ledger.transaction():
        run = _locked(run_id, user)
        if run.taken_over_by_id is None:
            raise Refused("not_taken_over", "Nobody has taken this run over.")
        if run.parent_id is not None:
            raise Refused("part_of_a_run", "Another run asked for this one. Hand that one back.")
        if not auth.may_hand_back(user, run):
            raise Refused("forbidden", f"{_who(run)} has taken this run over and must hand it back.")
        going_on = _taken(subagents.below(run))
        if held := auth.brake(user, run, *going_on):
            raise Refused("forbidden", held)
        actor = ledger.actor_of(user)
        assert run.conversation is not None
        conversation = conversations.lock(run.conversation)
        runs.hand_back(run, actor)
        for child in going_on:
            runs.hand_back(child, actor)
        subagents.go_on(run, actor)
        conversations.set_mode(conversation, Conversation.Mode.AUTO, run, actor)
        for each in (run, *going_on):
            transaction.on_commit(partial(tasks.nudge, each.pk), robust=True)
        transaction.on_commit(partial(runs.nudge_following, run.pk), robust=True)
    run.refresh_from_db()
    return run


def held_back(user: User, run: Run) -> str:
    """Why a person may not now hand back a run that is theirs to hand back, for the page that offers it. Reads only."""
    if not auth.may_hand_back(user, run) or user.has_perm("agentapp.pause_run"):
        return ""
    return auth.brake(user, run, *_taken(lineage.unfinished_below(run)))


def write_message(
    run_id: uuid.UUID,
    text: str,
    user: User,
    expected_version: int | None = None,
    key: str = "",
    token: ApiToken | None = None,
) -> Written:
    """Write to the customer of a run that the person has taken over. `key` is the writer's: a repeat adds nothing.

    The person who made the `token` used for writing may not decide about what the agent proposes afterwards.
    """
    if not text.strip():
        raise Refused("invalid", "The message is empty.", "text")
    if len(text) > MAX_TEXT_CHARS:
        raise Refused("invalid", f"The message is longer than {MAX_TEXT_CHARS} characters.", "text")
    try:
        with ledger.transaction():
            run = _locked(run_id, user)
            sent = conversations.written(user, key) if key else None
            if sent is not None:
                return Written(same_message(sent, text, run), repeated=True)
            if run.taken_over_by_id != user.pk:
                who = f"{_who(run)} has taken this run over." if run.taken_over_by else "You have not taken it over."
                raise Refused("not_taken_over", f"{who} Nothing was sent.")
            if run.parent_id is not None:
                raise Refused("part_of_a_run", "Another run asked for this one. Write in that one's conversation.")
            assert run.conversation is not None
            via = f"token {token.name}" if token is not None else ""
            new = conversations.NewMessage(run.conversation, run, text, user, user, key, via, token)
            return Written(conversations.write(new, expected_version), repeated=False)
    except conversations.Changed as changed:
        raise changed_meanwhile(changed) from changed
    except IntegrityError:
        sent = conversations.written(user, key) if key else None
        if sent is None:
            raise
        return Written(same_message(sent, text, sent.run), repeated=True)


def conversation_of(run_id: uuid.UUID, user: User) -> Conversation:
    """The conversation a run is in; if it had none, one that begins with it. Inside `ledger.transaction()`.

    An existing conversation is not locked, nor is its run: a caller that goes on in it locks other runs of it first.
    """
    run = auth.visible_runs(user).select_related("conversation").filter(pk=run_id).first()
    if run is None:
        raise _no_such_run()
    if run.parent_id is not None:
        raise Refused("part_of_a_run", "Another run asked for this one. Continue in that one's conversation.")
    return run.conversation or _conversation(_locked(run_id, user), user)


def same_message(sent: Message, text: str, run: Run | None) -> Message:
    """The message sent earlier with a key, if what is kept of it shows that it was the same."""
    if sent.content not in (without_secrets(storable(text)), ERASED) or (run is not None and sent.run_id != run.pk):
        raise key_reused()
    return sent


def key_reused() -> Refused:
    message = "This Idempotency-Key was used for a different request."
    return Refused("idempotency_key_reused", message, "Idempotency-Key")


def changed_meanwhile(changed: conversations.Changed) -> Refused:
    message = f"Something has been said since you looked: the conversation is at version {changed.version}."
    return Refused("conversation_changed", message, "conversation_version", version=changed.version)


def _taken(runs_below: list[Run]) -> list[Run]:
    """The runs below one that were taken over with it, and go on with it."""
    return [child for child in runs_below if child.taken_over_by_id is not None]


def _locked(run_id: uuid.UUID, user: User) -> Run:
    run = runs.lock(run_id)
    if run is None or not auth.visible_runs(user).filter(pk=run_id).exists():
        raise _no_such_run()
    return run


def _no_such_run() -> Refused:
    return Refused("not_found", "There is no such run.")


def _conversation(run: Run, user: User) -> Conversation:
    """The run's conversation, locked; if it had none, one that begins with the run."""
    if run.is_mocked:
        raise Refused("mocked", "This run was mocked, so there is nobody to speak with.")
    if run.conversation is None:
        run.conversation = conversations.begin_with(run, ledger.actor_of(user))
        runs.join(run, run.conversation)
    return conversations.lock(run.conversation)


def _check_free(run: Run, conversation: Conversation) -> None:
    """Raises Refused unless this run is the one to take over and nobody has taken it over."""
    if conversation.mode == Conversation.Mode.MANUAL and not conversation.person_wanted:
        taken = Run.objects.filter(conversation=conversation, taken_over_by__isnull=False).first()
        raise Refused("taken_over", f"{_who(taken or run)} has already taken over. Nothing was changed.")
    under_way = runs.unfinished().filter(conversation=conversation).order_by("created_at").first()
    if under_way is not None and under_way.pk != run.pk:
        raise Refused("not_under_way", f"{under_way.reference} is under way in this conversation. Take that one over.")


def _who(run: Run) -> str:
    return auth.name_of(run.taken_over_by) if run.taken_over_by else "Somebody"
