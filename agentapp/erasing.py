"""Erases what is kept about people: one run's words, one conversation's, or a customer's. The only writer of Erasure.

Each writer erases the words of its own rows, one run per transaction, so a killed worker leaves each run either erased
or not, and the next worker does the rest. Digests, times, states, costs and who decided stay. The ledger is not
touched, and verifies as before.
"""

import re
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from itertools import batched
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Count, Exists, OuterRef, Q, QuerySet

from agentapp import breakers, conversations, customer_links, drafts, executions, guidance_rows, runs
from agentapp.evals import suites
from agentapp.models import Conversation, CustomerLink, Erasure, Message, Run, ToolExecution
from agentapp.refused import Refused
from approvals import decisions, ledger
from approvals.clock import Now
from approvals.detectors import clean
from approvals.models import Approval
from approvals.sealed import ERASED

RIGHT = "agentapp.erase_content"
MAX_REASON = 500
MOST_LISTED = 20
MOST_NAMED = 10
# Databases limit how many values a statement may have; some at 32,766.
BATCH = 5000
_REFERENCE = re.compile(r"[0-9a-f]{6}")
STAYS = (
    "The ledger, with its digests, times and who did what. It verifies as before.",
    "Which tools were called, when, whether they acted, and what runs cost.",
    "That people decided, how and when, and their signatures.",
    "What tools have stored elsewhere, and messages that were sent.",
)
Scope = Erasure.Scope


@dataclass(frozen=True)
class Preview:
    """What an erasure would erase, by kind, and why it cannot be done now."""

    counts: dict[str, int]
    active: Sequence[str] = ()
    stays: Sequence[str] = field(default=STAYS)
    mentions: int = 0
    mentioning: Sequence[Run] = ()
    """For a customer: the latest runs that contain their name without being theirs. They stay."""

    @property
    def is_nothing(self) -> bool:
        return not any(self.counts.values())


def preview(scope: str, subject: str) -> Preview:
    """What there is to erase. Raises Refused if nothing has this name."""
    subject = subject.strip()
    found, talks = _covered(scope, subject)
    others = _mentioning(subject, set(found)) if scope == Scope.CUSTOMER and subject else []
    if not found and not talks and not others:
        raise Refused("not_found", "There is nothing kept under this name.", "subject")
    left = {pk for keys in _some(found) for pk in _left(Run).filter(pk__in=keys).values_list("pk", flat=True)}
    return Preview(
        {
            "runs": len(left),
            "calls": sum(_left(ToolExecution).filter(run__in=keys).count() for keys in _some(found)),
            "requests": sum(_left(Approval).filter(run_id__in=keys).count() for keys in _some(found)),
            "messages": _messages(set(found), talks),
            "conversations": sum(_left(Conversation).filter(pk__in=keys).count() for keys in _some(talks)),
        },
        active=_active(left),
        mentions=len(others),
        mentioning=list(Run.objects.filter(pk__in=others[:MOST_LISTED]).order_by("-pk")),
    )


def run_named(text: str) -> uuid.UUID:
    """The run with this id or page reference. Raises Refused, including when two runs have the same reference."""
    end = text.casefold().removeprefix("run_")
    if not _REFERENCE.fullmatch(end):
        return _id(text)
    found = list(Run.objects.filter(pk__iendswith=end).values_list("pk", flat=True)[:2])
    if len(found) > 1:
        raise Refused("invalid", "Several runs have this reference. Give the id, as in the page's address.", "subject")
    if not found:
        raise Refused("not_found", "There is nothing kept under this name.", "subject")
    return found[0]


def erase(scope: str, subject: str, reason: str, user: User | None, actor: str) -> Erasure:
    """Erase, and record that it was done and why. Raises Refused. `user`: None for a command."""
    if user is not None and not user.has_perm(RIGHT):
        raise Refused("forbidden", "Erasing needs the right to erase what runs and conversations hold.")
    if not reason.strip():
        raise Refused("message_required", "Say why: the reason stays on record. Name nobody in it.", "reason")
    if scope not in Scope.values:
        raise Refused("invalid", "You can erase a run, a conversation or a customer.", "scope")
    subject = subject.strip()
    if scope == Scope.RUN:
        subject = str(run_named(subject))  # a later run may have the same reference
    seen = preview(scope, subject)
    _refuse_active(seen)
    if seen.is_nothing:
        raise Refused("nothing_left", "Nothing is left to erase here.")
    why = clean(reason.strip())[:MAX_REASON]
    with ledger.transaction():
        made = Erasure.objects.create(
            scope=scope, subject=subject[:200], reason=why, asked_by=user, actor=actor[:200], asked_at=Now()
        )
        _note(made, "asked", {"reason": why})
    carry_out(made.pk)
    return Erasure.objects.get(pk=made.pk)


def carry_out(erasure_id: uuid.UUID) -> bool:
    """Do the rest of an erasure. False: it is already done. Raises Refused while something in it is at work."""
    erasure = Erasure.objects.get(pk=erasure_id)
    if erasure.done_at is not None:
        return False
    gone: set[uuid.UUID] = set()
    over: set[uuid.UUID] = set()
    while True:
        if erasure.scope == Scope.CUSTOMER and erasure.subject:
            # A worker that takes over from a killed one finds the conversation by this: erased runs name nobody.
            for talk_id in _unnamed_talks(_as_stored(erasure.subject)):
                conversations.name_customer(talk_id, erasure.subject)
        # Look again: runs that were started from these meanwhile contain their words.
        found, talks = _covered(erasure.scope, erasure.subject, gone, over)
        if left := [run_id for run_id in found if run_id not in gone]:
            for run_id in left:
                with ledger.transaction():
                    locked = Erasure.objects.select_for_update().get(pk=erasure_id)
                    counts = take_away(run_id, erasure.actor, {"erasure": str(erasure_id)})
                    _count(locked, counts)
            gone.update(left)
        elif apart := [talk_id for talk_id in talks if talk_id not in over]:
            for talk in (talk for keys in _some(apart) for talk in Conversation.objects.filter(pk__in=keys)):
                if _end_talk(talk, erasure.actor):
                    over.add(talk.pk)
        else:
            break
    with ledger.transaction():
        locked = Erasure.objects.select_for_update().get(pk=erasure_id)
        if Erasure.objects.filter(pk=erasure_id, done_at__isnull=True).update(done_at=Now(), subject=""):
            _note(locked, "done", {"counts": locked.counts})
    return True


def _end_talk(talk: Conversation, actor: str) -> bool:
    """Erase a conversation whose runs are erased. False: a new run has begun in it and must be erased first."""
    with ledger.transaction():
        conversations.lock(talk)
        if _left(Run).filter(conversation=talk).exists():
            return False
        for link in CustomerLink.objects.filter(conversation=talk, revoked_at__isnull=True):
            customer_links.revoke(link, actor)
        conversations.erase(talk, actor, actor)
    return True


def unfinished() -> list[uuid.UUID]:
    """Erasures whose worker was lost, or that met a run at work."""
    return list(Erasure.objects.filter(done_at__isnull=True).order_by("asked_at").values_list("pk", flat=True)[:100])


def take_away(run_id: uuid.UUID, by: str, facts: dict[str, str], before: datetime | None = None) -> dict[str, int]:
    """Erase the words of one ended run and of everything that depends on it. Empty: it was already done.

    For a run that is already erased, erase what was said in it since; `before`: only what was said earlier. The caller
    is inside `ledger.transaction()`. Raises Refused for a run at work.
    """
    runs.lock_parent(run_id)
    run = runs.lock(run_id)
    if run is None:
        return {}
    if run.erased_at is not None:
        return _take_said_since(run, by, facts, before)
    # A mocked call is known to have done nothing.
    lost = ToolExecution.objects.filter(run=run, state=ToolExecution.State.OUTCOME_UNKNOWN, mocked=False)
    unknown = lost.exists()
    if not run.is_final or unknown:
        _refuse_active(Preview({}, [run.reference]))
    breakers.erase_said(run)  # first: breakers are always locked before conversations
    counts = {
        "runs": 1,
        "calls": executions.erase(run),
        "requests": decisions.erase([run.pk], by),
        "messages": conversations.erase_said([run]),
    }
    guidance_rows.erase(run)
    drafts.discard(run)
    tried = suites.runs_of_cases_made_of([run.pk])
    suites.forget([run.pk])
    runs.erase(run, by)
    ledger.record(ledger.run_chain(run.pk), "run.erased", {**facts, **counts}, by)
    # Cases made from its words, and their runs, contain them too.
    for name, number in take_tried_away(tried, by, facts).items():
        counts[name] += number
    return counts


def _take_said_since(run: Run, by: str, facts: dict[str, str], before: datetime | None) -> dict[str, int]:
    """Erase what was said in an erased run since, by a person who took it over and by the customer."""
    said = conversations.erase_said([run], before)
    if not said:
        return {}
    ledger.record(ledger.run_chain(run.pk), "run.erased", {**facts, "messages": said}, by)
    return {"messages": said}


def take_tried_away(tried: list[uuid.UUID], by: str, facts: dict[str, str]) -> Counter[str]:
    """Erase the words of mocked runs of cases, and of the runs below them, like `take_away`."""
    counts: Counter[str] = Counter()
    for other in _with_those_below(tried):
        counts.update(take_away(other, by, facts))
    return counts


def _covered(
    scope: str, subject: str, gone: Iterable[uuid.UUID] = (), over: Iterable[uuid.UUID] = ()
) -> tuple[list[uuid.UUID], list[uuid.UUID]]:
    """The runs and conversations that an erasure covers, with those that came from them.

    `gone`, `over`: runs and conversations it has already erased, which no longer name a customer.
    """
    found, talks = set(gone), set(over)
    if scope == Scope.RUN:
        found.update(Run.objects.filter(pk=run_named(subject)).values_list("pk", flat=True))
    elif scope == Scope.CONVERSATION:
        talks.update(Conversation.objects.filter(pk=_id(subject)).values_list("pk", flat=True))
    elif subject:
        names = _as_stored(subject)
        found.update(Run.objects.filter(customer__in=names).values_list("pk", flat=True))
        talks.update(Conversation.objects.filter(customer__in=names).values_list("pk", flat=True))
        talks.update(_unnamed_talks(names))
    every = _with_forks(talks)
    return _with_those_below(_known({*found, *_in_talks(every)})), every


def _as_stored(customer: str) -> list[str]:
    """The names under which a customer is kept: older rows may have white space around them."""
    names = {customer}
    for kept in (Run.objects, Conversation.objects):
        alike = kept.filter(customer__contains=customer).order_by().values_list("customer", flat=True).distinct()
        names.update(name for name in alike if name.strip() == customer)
    return sorted(names)


def _unnamed_talks(names: Sequence[str]) -> list[uuid.UUID]:
    """Conversations that name no customer, in which only this customer's runs have spoken."""
    spoke = Run.objects.filter(messages__conversation=OuterRef("pk"))
    theirs = Message.objects.filter(run__customer__in=names).values("conversation")
    unnamed = Conversation.objects.filter(customer="", pk__in=theirs)
    alone = unnamed.exclude(Exists(spoke.exclude(customer__in=["", *names])))
    return list(alone.values_list("pk", flat=True))


def _with_those_below(found: list[uuid.UUID]) -> list[uuid.UUID]:
    """The runs with those they asked for, and with those that contain their words: retries, forks, replays, and runs
    that undo their calls."""
    every, level = set(found), list(found)
    while level:
        below: set[uuid.UUID] = set()
        for keys in _some(level):
            theirs = Q(parent__in=keys) | Q(retry_of__in=keys)
            below.update(Run.objects.filter(theirs).values_list("pk", flat=True))
            below.update(Run.objects.filter(undoes__run__in=keys).values_list("pk", flat=True))
        level = _known(below - every)
        found = [*found, *level]
        every.update(level)
    return found


def _with_forks(begin: Iterable[uuid.UUID]) -> list[uuid.UUID]:
    """Conversations, and their forks."""
    every = level = _known(begin)
    while level:
        forks: set[uuid.UUID] = set()
        for some in _some(level):
            forks.update(Conversation.objects.filter(forked_from__in=some).values_list("pk", flat=True))
        level = _known(forks - set(every))
        every = [*every, *level]
    return every


def _in_talks(talks: Sequence[uuid.UUID]) -> list[uuid.UUID]:
    """The runs of conversations."""
    return [
        pk for keys in _some(talks) for pk in Run.objects.filter(conversation__in=keys).values_list("pk", flat=True)
    ]


def _some(keys: Iterable[uuid.UUID]) -> Iterator[tuple[uuid.UUID, ...]]:
    """Batches no larger than one statement allows."""
    return batched(keys, BATCH, strict=False)


def _left(model: type[Any]) -> QuerySet[Any]:
    """The rows whose words are still there."""
    rows: QuerySet[Any] = model._default_manager.filter(erased_at__isnull=True)
    return rows


def _messages(found: Set[uuid.UUID], talks: Sequence[uuid.UUID]) -> int:
    """How many messages are left, in runs, including those said after a run was erased, and outside them."""
    said = Message.objects.exclude(content=ERASED)
    number = sum(said.filter(run__in=keys).count() for keys in _some(found))
    for keys in _some(talks):
        by_run = said.filter(conversation__in=keys).order_by().values_list("run").annotate(Count("pk"))
        number += sum(many for run, many in by_run if run not in found)
    return number


def _active(left: Iterable[uuid.UUID]) -> list[str]:
    """References of some runs that cannot be erased now."""
    unknown = Q(executions__state=ToolExecution.State.OUTCOME_UNKNOWN, executions__mocked=False)
    found: list[str] = []
    for keys in _some(left):
        at_work = Run.objects.filter(~Q(state__in=Run.FINAL) | unknown, pk__in=keys).distinct()
        found += [run.reference for run in at_work[: MOST_NAMED - len(found)]]
        if len(found) == MOST_NAMED:
            break
    return found


def _known(keys: Iterable[uuid.UUID]) -> list[uuid.UUID]:
    return sorted(keys)


def _id(text: str) -> uuid.UUID:
    try:
        return uuid.UUID(text)
    except ValueError as error:
        said = "Give the id, as in the address of the page, or the reference of a run."
        raise Refused("invalid", said, "subject") from error


def _mentioning(customer: str, covered: Set[uuid.UUID]) -> list[uuid.UUID]:
    """Runs that are not a customer's, but whose title, messages or calls contain the name, the latest first."""
    calls = ToolExecution.objects.filter(
        Q(arguments_text__contains=customer) | Q(executed_text__contains=customer) | Q(result_text__contains=customer),
        run=OuterRef("pk"),
    )
    said = Message.objects.filter(run=OuterRef("pk"), content__contains=customer)
    holds = Q(title__contains=customer) | Exists(calls) | Exists(said)
    return [pk for pk in _left(Run).filter(holds).order_by("-pk").values_list("pk", flat=True) if pk not in covered]


def _refuse_active(seen: Preview) -> None:
    if seen.active:
        names = ", ".join(seen.active)
        raise Refused("active", f"Still at work, or with an outcome nobody knows: {names}. End that first.", "subject")


def _count(erasure: Erasure, counts: dict[str, int]) -> None:
    if counts:
        added = {name: erasure.counts.get(name, 0) + number for name, number in counts.items()}
        Erasure.objects.filter(pk=erasure.pk).update(counts=erasure.counts | added)


def _note(erasure: Erasure, what: str, data: dict[str, object]) -> None:
    said = {"erasure": str(erasure.pk), "scope": erasure.scope, **data}
    ledger.record(ledger.CONFIGURATION, f"erasure.{what}", said, erasure.actor)
