"""What a customer can do in their own conversation: open it, write, confirm or decline, ask for a person."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User

from agentapp import auth, conversations, customer_links, deciding, open_runs, starting
from agentapp.models import Agent, ApiToken, Conversation, CustomerLink, Run
from agentapp.refused import Refused
from approvals import clock, decisions, ledger
from approvals.digest import storable
from approvals.models import Approval, ApprovalKind, DecisionType

MAX_LINK_HOURS = 24 * 30
# A customer learns nothing about agents, their tools and whom they are kept to.
NOBODY_ANSWERS = "This conversation cannot go on here. Please get in touch with us another way."
_NO_REQUEST = "There is nothing with this id to confirm here."
NOT_THE_CUSTOMER = (
    "A member of our team who asked for this, or made this link, has opened it in this browser, so it cannot be "
    "answered here. The customer must answer it on their own device."
)


@dataclass(frozen=True)
class Access:
    """A customer's access to their conversation: through a program that speaks with them, or through their link.

    What they say starts runs in the name of `user`, who is not the customer and confirms nothing.
    """

    conversation: Conversation
    user: User
    via: str
    token: ApiToken | None = None
    link: CustomerLink | None = None
    opened_by: Sequence[User] = ()
    """Members of the team who are known to have opened the link in this browser."""

    @property
    def customer(self) -> str:
        # If no customer is named, the record keeps the conversation's id: its key is erased with it.
        return self.conversation.customer or str(self.conversation.pk)

    @property
    def actor(self) -> str:
        return f"customer:{self.customer} ({self.via})"[: ledger.MAX_ACTOR]

    @property
    def way(self) -> dict[str, Any]:
        """How an answer came, for the record: it shows why we believe that the customer gave it."""
        if self.link is None:
            return {"carried_by": ledger.actor_of(self.user)}
        made = {"link": str(self.link.pk), "link_made_by": ledger.actor_of(self.link.made_by)}
        opened = {"link_opened_by": [ledger.actor_of(user) for user in self.opened_by]} if self.opened_by else {}
        return {**made, "link_made_at": self.link.created_at.isoformat(), **opened}


@dataclass(frozen=True)
class Answer:
    """The customer's answer to a confirmation, about exactly what they were shown."""

    id: uuid.UUID
    yes: bool
    version: int
    action_digest: str


def open_conversation(agent_name: str, key: str, customer: str, user: User, via: str) -> tuple[Conversation, bool]:
    """The conversation of this name, open for its customer, and whether it is new. Opening it twice changes nothing."""
    if not auth.may_start(user):
        raise Refused("forbidden", "Opening conversations needs the right to start runs.")
    agent = Agent.objects.filter(name=agent_name, enabled=True).first()
    if agent is None:
        raise Refused("unknown_agent", f"There is no agent named {agent_name!r}.", "agent")
    if not key.strip():
        raise Refused("invalid", "The conversation needs a name.", "key")
    name = storable(customer).strip()
    if not name:
        raise Refused("invalid", "Say whose conversation it is.", "customer")
    with ledger.transaction():
        conversation = conversations.find_or_open(agent, storable(key), name)
        conversation = conversations.lock_to_go_on(conversation)
        if not auth.may_join(user, conversation):
            raise Refused("forbidden", "This conversation belongs to somebody else.", "key")
        if conversation.customer.strip() != name:
            raise Refused("conversation_exists", "A conversation with this name belongs to another customer.", "key")
        if not conversation.has_channel:
            _check_starter(conversation, agent, user)
        is_new = conversations.open_channel(conversation, ledger.actor_of(user, via))
    conversation.has_channel = True
    return conversation, is_new


def of_program(conversation_id: uuid.UUID, user: User, token: ApiToken) -> Access:
    """A conversation opened for its customer, for a program that speaks with them."""
    opened = Conversation.objects.filter(has_channel=True, erased_at__isnull=True).select_related("agent")
    found = opened.filter(pk=conversation_id).first()
    # A person who may see none of it must not even learn that it exists.
    if found is None or not auth.may_join(user, found):
        raise Refused("not_found", "There is no such conversation.")
    if not auth.may_start(user):
        raise Refused("forbidden", "Speaking for a customer needs the right to start runs.")
    return Access(found, user, f"token {token.name}", token)


def of_staff(conversation: Conversation, user: User) -> Access:
    """Access for a person who may speak in a conversation, to make a link for its customer. They cannot answer in the
    customer's place: only a link or a program's token carries a customer's words.
    """
    if not auth.may_start(user) or not auth.may_join(user, conversation):
        raise Refused("forbidden", "Making links needs the right to start runs in this conversation.")
    return Access(conversation, user, "console")


def make_link(access: Access, hours: int) -> CustomerLink:
    """A link for the customer. What is said through it starts runs in the name of the person who makes it."""
    if not 1 <= hours <= MAX_LINK_HOURS:
        raise Refused("invalid", f"A link can be valid for 1 to {MAX_LINK_HOURS} hours.", "hours")
    _check_starter(access.conversation, access.conversation.agent, access.user)
    expires_at = clock.asked() + timedelta(hours=hours)
    actor = ledger.actor_of(access.user, access.via)
    return customer_links.make(access.conversation, access.user, expires_at, actor, access.token)


def write(access: Access, text: str, expected_version: int | None = None, key: str = "") -> starting.Started:
    """Write a message: the agent answers it like any other, or it is kept for a person."""
    if not text.strip():
        raise Refused("invalid", "The text is empty.", "text")
    conversation = access.conversation
    most = settings.CUSTOMER_MESSAGES_PER_MINUTE
    if conversations.said_lately(conversation) >= most:
        raise Refused("too_many_messages", f"More than {most} messages in a minute. Wait a moment, then send it again.")
    new = starting.NewRun(
        agent=conversation.agent.name,
        input=text,
        customer=conversation.customer,
        conversation=conversation.key,
        conversation_version=expected_version,
        request_key=key,
    )
    try:
        return starting.start_run_once(new, access.user, access.token)
    except Refused as refused:
        if refused.code == open_runs.CODE:
            raise Refused(refused.code, "Too much is under way here at the moment. Send it again later.") from refused
        if refused.field == "agent":
            raise Refused("forbidden", NOBODY_ANSWERS) from refused
        raise


def _check_starter(conversation: Conversation, agent: Agent, user: User) -> None:
    """What the customer says starts runs of this person, unless a person answers."""
    if conversation.mode != Conversation.Mode.MANUAL:
        starting.check_starter(agent, "", user)


def confirm(access: Access, approval_id: uuid.UUID, answer: Answer) -> decisions.Taken:
    """Take the customer's yes or no to exactly what they were shown. Nobody else can give it."""
    approval = Approval.objects.filter(pk=approval_id, kind=ApprovalKind.CONFIRMATION).first()
    if approval is None:
        raise Refused("not_found", _NO_REQUEST)
    run = Run.objects.filter(pk=approval.run_id, conversation=access.conversation).first()
    if run is None:
        raise Refused("not_found", _NO_REQUEST)
    if not may_answer(access, run):
        raise Refused("not_the_customer", NOT_THE_CUSTOMER, approval=approval)
    # A no stops something, however it comes.
    if answer.yes and not auth.may_start(access.user):
        raise Refused("forbidden", "Speaking for a customer needs the right to start runs.")
    incoming = decisions.Incoming(
        id=answer.id,
        type=DecisionType.APPROVE if answer.yes else DecisionType.REJECT,
        user=None,
        version=answer.version,
        action_digest=answer.action_digest,
        via=access.via,
        customer=access.customer,
        way=access.way,
    )
    return deciding.take(approval, incoming)


def may_answer(access: Access, run: Run) -> bool:
    """Whether a run's question can be answered here: not if a person who made the link, or asked for it, opened it."""
    asked = {run.starter_id, *run.takers}
    if access.link is not None:
        asked |= {access.link.made_by_id, access.link.token and access.link.token.issued_by_id}
    return asked.isdisjoint(user.pk for user in access.opened_by)


def ask_for_person(access: Access) -> Conversation:
    """Let the conversation wait for a person. Asking again changes nothing."""
    with ledger.transaction():
        conversation = conversations.lock(access.conversation)
        about = Run.objects.filter(conversation=conversation, parent__isnull=True).order_by("-created_at").first()
        if about is None:
            raise Refused("nothing_said", "First say what it is about.")
        facts = {"run": str(about.pk)}
        conversations.want_person(conversation, Conversation.Wants.CUSTOMER, facts, access.actor)
    conversation.refresh_from_db()
    return conversation
