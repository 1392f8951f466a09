"""The only writer of Conversation and Message."""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Exists, F, Max, OuterRef

from agentapp.models import Agent, ApiToken, Conversation, Message, Run
from agentapp.refused import Refused
from approvals import ledger
from approvals.clock import Now
from approvals.detectors import without_secrets
from approvals.digest import sha256, storable
from approvals.sealed import ERASED

# The namespace of message ids that are made from their writers' keys.
_WRITTEN = uuid.UUID("5a1c4a0e-6f0f-4c55-9d0b-0d9a3c6d6a11")


@dataclass(frozen=True)
class NewMessage:
    """What is said while a person has taken over. Without an author, it is the customer's."""

    conversation: Conversation
    run: Run
    text: str
    writer: User
    author: User | None = None
    key: str = ""
    """The writer's own key, so that sending the message again adds nothing."""
    via: str = ""
    token: ApiToken | None = None
    """The token it was sent with."""


class Changed(Exception):
    """Something was said since the writer looked. `version` is the current one."""

    def __init__(self, version: int) -> None:
        super().__init__(f"The conversation is at version {version}.")
        self.version = version


class NoSuchPlace(Exception):
    """A place that the conversation does not have, or has already passed."""


class AlreadySummarised(NoSuchPlace):
    """There is already a summary that covers more than this one would."""


def chain(conversation_id: uuid.UUID) -> str:
    """The chain of what happens to a conversation outside its runs."""
    return f"conversation:{conversation_id}"


def find_or_open(agent: Agent, key: str, customer: str) -> Conversation:
    """The agent's conversation under the name that callers give it."""
    conversation, _ = Conversation.objects.get_or_create(agent=agent, key=key, defaults={"customer": customer})
    return conversation


def name_customer(conversation_id: uuid.UUID, customer: str) -> bool:
    """Name the customer of a conversation that had none, so that erasing the customer finds what was said before.
    False: it already names one, or is erased.
    """
    unnamed = Conversation.objects.filter(pk=conversation_id, customer="", erased_at__isnull=True)
    return bool(customer and unnamed.update(customer=customer))


def lock(conversation: Conversation, expected_version: int | None = None) -> Conversation:
    """The row, locked until the transaction ends. A caller that also locks runs locks them first.

    Raises Changed unless the conversation is at the expected version. None: any version will do.
    """
    locked = Conversation.objects.select_for_update().get(pk=conversation.pk)
    if expected_version is not None and locked.version != expected_version:
        raise Changed(locked.version)
    return locked


def lock_to_go_on(conversation: Conversation, expected_version: int | None = None) -> Conversation:
    """Like `lock`, for adding to a conversation. Raises Refused if the conversation is erased: new messages would be
    kept under no customer's name, and no erasure would find them.
    """
    locked = lock(conversation, expected_version)
    if locked.erased_at is not None:
        raise Refused("erased", "This conversation has been erased. Begin another one.", "conversation")
    return locked


def add(
    conversation: Conversation, run: Run, role: str, content: str, expected_version: int | None = None, **more: Any
) -> Message:
    """Append a message. The conversation's row is locked, so that places are consecutive. Raises Changed.

    The run's own chain records what a run says. `more`: the row's `id` and `author`.
    """
    lock(conversation, expected_version)
    return _append(conversation, run, role, content, **more)


def _append(conversation: Conversation, run: Run, role: str, content: str, **more: Any) -> Message:
    message = Message.objects.create(
        conversation=conversation,
        run=run,
        seq=_last(conversation) + 1,
        role=role,
        content=without_secrets(storable(content)),
        **more,
    )
    Conversation.objects.filter(pk=conversation.pk).update(version=F("version") + 1)
    return message


def ask(conversation: Conversation, run: Run, actor: str) -> None:
    """Append the message that a new run must answer. The caller holds the conversation's lock."""
    message = add(conversation, run, Message.Role.USER, run.input)
    ledger.record(chain(conversation.pk), "conversation.asked", {"seq": message.seq, "run": str(run.pk)}, actor)


def write(message: NewMessage, expected_version: int | None = None) -> Message:
    """Append what the person who has taken over, or the customer, says. Raises Changed and Refused.

    The caller is inside `ledger.transaction()`.
    """
    conversation, by_person = message.conversation, message.author is not None
    role = Message.Role.ASSISTANT if by_person else Message.Role.USER
    key = {"id": written_id(message.writer, message.key)} if message.key else {}
    lock_to_go_on(conversation, expected_version)
    sent = {"author": message.author, "writer": message.writer, "token": message.token}
    row = _append(conversation, message.run, role, message.text, **sent, **key)
    what = "conversation.person_wrote" if by_person else "conversation.customer_wrote"
    facts = {"seq": row.seq, "run": str(message.run.pk)}
    ledger.record(chain(conversation.pk), what, facts, ledger.actor_of(message.writer, message.via))
    return row


def written_id(writer: User, key: str) -> uuid.UUID:
    """The id of a message sent with the writer's own key, so that sending it again adds nothing."""
    return uuid.uuid5(_WRITTEN, f"{writer.pk}:{key}")


def written(writer: User, key: str) -> Message | None:
    """The message that was sent with this key."""
    rows = Message.objects.select_related("run", "conversation__agent")
    return rows.filter(pk=written_id(writer, key)).first()


def begin_with(run: Run, actor: str) -> Conversation:
    """A conversation that begins with a run that had none: its input, and its answer.

    The caller holds the run's lock, and makes the run part of the conversation.
    """
    for key in (f"run:{run.reference}", f"run:{run.pk}"):
        conversation, created = Conversation.objects.get_or_create(
            agent=run.agent, key=key, defaults={"customer": run.customer}
        )
        if created:  # a reference is short, so another run may have the same
            break
    ledger.record(chain(conversation.pk), "conversation.begun", {"run": str(run.pk)}, actor)
    add(conversation, run, Message.Role.USER, run.input)
    if run.answer:
        add(conversation, run, Message.Role.ASSISTANT, run.answer)
    conversation.refresh_from_db()
    return conversation


def set_mode(conversation: Conversation, mode: str, run: Run, actor: str) -> None:
    """Let a person speak, or the agent again. The caller holds the conversation's lock."""
    Conversation.objects.filter(pk=conversation.pk).update(mode=mode, person_wanted="", person_wanted_at=None)
    what = "conversation.taken_over" if mode == Conversation.Mode.MANUAL else "conversation.handed_back"
    ledger.record(chain(conversation.pk), what, {"run": str(run.pk)}, actor)


def open_channel(conversation: Conversation, actor: str) -> bool:
    """Let a program speak with the customer in a conversation. The caller holds its lock. False: it already does."""
    changed = Conversation.objects.filter(pk=conversation.pk, has_channel=False).update(has_channel=True)
    if changed:
        ledger.record(chain(conversation.pk), "conversation.channel_opened", actor=actor)
    return bool(changed)


def said_lately(conversation: Conversation) -> int:
    """How many messages the customer has sent in the last minute."""
    since = Now() - timedelta(minutes=1)
    return conversation.messages.filter(role=Message.Role.USER, created_at__gt=since).count()


def want_person(conversation: Conversation, by: str, facts: Mapping[str, str], actor: str = ledger.SYSTEM) -> bool:
    """Let the conversation wait for any person. The caller holds the conversation's lock.

    False: it already waits, or somebody has taken over.
    """
    changed = Conversation.objects.filter(pk=conversation.pk, mode=Conversation.Mode.AUTO).update(
        mode=Conversation.Mode.MANUAL, person_wanted=by, person_wanted_at=Now()
    )
    if changed:
        data = {"mode": str(Conversation.Mode.MANUAL), "by": by, **facts}
        ledger.record(chain(conversation.pk), "conversation.mode_changed", data, actor)
    return bool(changed)


def want_nobody(conversation: Conversation, facts: Mapping[str, str]) -> bool:
    """Let the agent speak after all, if one of its own results asked for a person and none has come.

    The caller holds the conversation's lock. False: no result asked for one.
    """
    wanting = Conversation.objects.filter(pk=conversation.pk, person_wanted=Conversation.Wants.AGENT)
    changed = wanting.update(mode=Conversation.Mode.AUTO, person_wanted="", person_wanted_at=None)
    if changed:
        data = {"mode": str(Conversation.Mode.AUTO), "by": str(Conversation.Wants.AGENT), **facts}
        ledger.record(chain(conversation.pk), "conversation.mode_changed", data)
    return bool(changed)


def summarise(
    conversation: Conversation, text: str, until: int, by: User | None = None, expected_version: int | None = None,
    token: ApiToken | None = None,
) -> bool:  # fmt: skip
    """Keep a summary of the messages up to a place, for the compiler that sends it instead of them.

    It is not a message, so the version stays. False: the summary is unchanged. Raises Changed, NoSuchPlace for a place
    after the last message, AlreadySummarised for one before the end of the existing summary, and Refused.
    """
    kept = without_secrets(storable(text))
    with ledger.transaction():
        locked = lock_to_go_on(conversation, expected_version)
        if not 1 <= until <= _last(locked):
            raise NoSuchPlace(f"There is no message {until} to summarise up to.")
        if until < locked.summary_until:
            raise AlreadySummarised(f"There is already a summary up to message {locked.summary_until}.")
        if (kept, until) == (locked.summary, locked.summary_until):
            return False
        told = {"summary": kept, "summary_until": until, "summarised_by": by, "summary_token": token}
        Conversation.objects.filter(pk=locked.pk).update(**told)
        data = {"until": until, "digest": sha256(kept)}
        ledger.record(chain(locked.pk), "conversation.summarised", data, ledger.actor_of(by))
    return True


def fork(conversation: Conversation, upto_seq: int | None, key: str, actor: str = ledger.SYSTEM) -> Conversation:
    """A new conversation that begins with the messages up to a place; None: with all of them.

    The copies name the runs they come from, so a person who may see one may see the other. Raises NoSuchPlace, Refused,
    and IntegrityError if the agent already has a conversation with that key.
    """
    with ledger.transaction():
        source = lock_to_go_on(conversation)
        place = _last(source) if upto_seq is None else upto_seq
        said = list(source.messages.filter(seq__lte=place).order_by("seq"))
        if not said or said[-1].seq != place:
            raise NoSuchPlace(f"There is no message {place} to fork at.")
        summed_up = 0 < source.summary_until <= place
        forked = Conversation.objects.create(
            agent=source.agent, key=storable(key), customer=source.customer, forked_from=source, version=len(said),
            summary=source.summary if summed_up else "", summary_until=source.summary_until if summed_up else 0,
            summarised_by_id=source.summarised_by_id if summed_up else None,
            summary_token_id=source.summary_token_id if summed_up else None,
        )  # fmt: skip
        Message.objects.bulk_create(
            Message(
                conversation=forked,
                run_id=m.run_id,
                seq=m.seq,
                role=m.role,
                content=m.content,
                author_id=m.author_id,
                writer_id=m.writer_id,
                token_id=m.token_id,
            )
            for m in said
        )
        facts = {"from": str(source.pk), "upto": place}
        ledger.record(chain(forked.pk), "conversation.forked", facts, actor)
    return forked


def _last(conversation: Conversation) -> int:
    """The place of the last message; 0 if nothing was said."""
    return Message.objects.filter(conversation=conversation).aggregate(last=Max("seq"))["last"] or 0


def erase_said(runs: Iterable[Run], before: datetime | None = None) -> int:
    """Erase what was said in some runs; `before`: only what was said earlier. Returns the number of messages.

    Each conversation in which it was said is locked first, so a fork that copies from it comes wholly before or after.
    A fork made before is visible once we hold the lock, and is locked too, until no more are found. A summary of the
    erased messages goes with them: the next one is made from what is left.
    """
    said = Message.objects.filter(run__in=list(runs)).exclude(content=ERASED)
    if before is not None:
        said = said.filter(created_at__lt=before)
    locked: set[uuid.UUID] = set()
    while more := set(said.order_by().values_list("conversation", flat=True).distinct()) - locked:
        in_them = Conversation.objects.filter(pk__in=more).order_by("pk")
        locked.update(in_them.select_for_update().values_list("pk", flat=True))
    summed_up = said.filter(conversation=OuterRef("pk"), seq__lte=OuterRef("summary_until"))
    of_these = Conversation.objects.filter(Exists(summed_up), pk__in=locked)
    of_these.update(summary="", summary_until=0, summarised_by=None, summary_token=None)
    return said.update(content=ERASED)


def erase(conversation: Conversation, by: str, actor: str) -> bool:
    """Erase who spoke in a conversation and what is left of what was said. False: it was already done.

    The caller has erased its runs, and is inside `ledger.transaction()`.
    """
    of = Conversation.objects.filter(pk=conversation.pk, erased_at__isnull=True)
    gone = {"key": f"erased-{conversation.pk}", "customer": "", "summary": "", "has_channel": False}
    changed = of.update(**gone, erased_at=Now(), erased_by=by[:200])
    Message.objects.filter(conversation=conversation).exclude(content=ERASED).update(content=ERASED)
    if changed:
        ledger.record(chain(conversation.pk), "conversation.erased", {}, actor)
    return bool(changed)
