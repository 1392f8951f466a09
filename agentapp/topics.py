"""What a page can listen for in the event stream, and how much of it a person may hear."""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.db.models import Q

from agentapp import auth
from agentapp.models import Run
from agentapp.wakeups import EVERYTHING, Fact
from approvals.ledger import CONFIGURATION

# How many unfinished runs of a conversation are listened to.
MAX_CHAT_RUNS = 50
# Any event of the ledger, in any chain.
RECORDED = "recorded"
# The only events that change what waits for people.
INBOX_EVENTS = ("approval.", "tool_call.outcome_", "tool_call.reopened", "tool_call.late_answer", "tool_call.completed")
# Stopping things and releasing them changes what pages say about all runs and requests.
SWITCHES = "switch."


@dataclass(frozen=True)
class Topic:
    """Something a page wants to hear about, as far as its reader may. `run` limits it to one run.

    `about`: what changes: a run, its conversation, its draft, or anything that is recorded. `grows`: an event may add
    to what the page wants to hear about.
    """

    event: str
    data: str = ""
    run: str = ""
    only: tuple[str, ...] = ()
    own: frozenset[str] | None = None
    about: str = "run"
    grows: bool = False

    def concerns(self, fact: Fact) -> bool:
        if fact == EVERYTHING:
            return True
        about, _, run = fact.chain.partition(":")
        if self.about == RECORDED:
            return about != "draft"
        if about == CONFIGURATION and fact.type.startswith(SWITCHES):
            return self.about == "run"
        if about != self.about or (self.only and not fact.type.startswith(self.only)):
            return False
        return self.run in ("", run) and (self.own is None or run in self.own)

    @property
    def message(self) -> bytes:
        return f"event: {self.event}\ndata: {self.data}\n\n".encode()


def topics_of(name: str, user: User) -> Iterable[Topic]:
    """`chat:<id of a run>`: its conversation's open runs and messages; or what `_topic` knows."""
    kind, _, key = name.partition(":")
    if kind != "chat":
        topic = _topic(name, user)
        return () if topic is None else (topic,)
    try:
        run = auth.visible_runs(user).select_related("conversation").filter(pk=uuid.UUID(key)).first()
    except ValueError:
        run = None
    if run is None:
        return ()
    open_runs = auth.visible_runs(user).filter(conversation=run.conversation).exclude(state__in=Run.FINAL)
    shown = open_runs.order_by("-created_at").values_list("pk", flat=True)[:MAX_CHAT_RUNS] if run.conversation else ()
    own = frozenset(map(str, (run.pk, *shown)))
    said = Topic("chat-changed", key, own=own, grows=run.conversation is None)
    topics = [said, Topic("draft-changed", key, own=own, about="draft")]
    if run.conversation is not None and auth.may_join(user, run.conversation):
        talk = Topic("chat-changed", key, run=str(run.conversation_id), about="conversation", grows=True)
        topics.append(talk)
    return topics


def _topic(name: str, user: User) -> Topic | None:
    """`inbox`, `runs`, `audit`, `run:<id>` or `approval:<id>`, as far as this person may see it."""
    kind, _, key = name.partition(":")
    if kind == "audit":
        return Topic("audit-changed", "1", about=RECORDED) if user.has_perm("approvals.view_event") else None
    if kind == "inbox":
        everything = user.has_perm("approvals.decide_approval") or user.has_perm("approvals.view_approval")
        return Topic("inbox-changed", "1", only=INBOX_EVENTS, own=None if everything else _own(user))
    if kind == "runs":
        return Topic("runs-changed", "1", own=None if user.has_perm("agentapp.view_run") else _own(user))
    try:
        wanted = uuid.UUID(key)
    except ValueError:
        return None
    if kind == "run" and auth.visible_runs(user).filter(pk=wanted).exists():
        return Topic("run-changed", str(wanted), own=_family(wanted))
    if kind == "approval":
        run = auth.visible_approvals(user).filter(pk=wanted).values_list("run_id", flat=True).first()
        return None if run is None else Topic("approval-changed", str(wanted), run=str(run))
    return None


def _family(run: uuid.UUID) -> frozenset[str]:
    """A run and those that answer its calls, whose costs and states its page shows. Later ones: at the next check."""
    below = Run.objects.filter(Q(parent=run) | Q(parent__parent=run)).values_list("pk", flat=True)[:200]
    return frozenset(map(str, (run, *below)))


def _own(user: User) -> frozenset[str]:
    """The latest runs a person started: those they may still be watching."""
    return frozenset(map(str, user.runs.order_by("-created_at").values_list("pk", flat=True)[:200]))
