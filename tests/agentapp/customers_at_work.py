"""Customers for tests: a conversation that is open to one, and what they do in it."""

import uuid
from typing import Any

from agentapp import customers
from agentapp.customers import Access, Answer
from agentapp.models import Conversation, Run
from approvals import decisions, ledger
from approvals.models import Approval, Rule


def access_to(clerk: Any, key: str = "ticket-7", customer: str = "Ana") -> Access:
    """A conversation of the clerk's, handled by a program of Sam's that speaks with its customer."""
    conversation, _ = customers.open_conversation(clerk.agent.name, key, customer, clerk.starter, "test")
    return Access(Conversation.objects.select_related("agent").get(pk=conversation.pk), clerk.starter, "token shop")


def say(access: Access, text: str, **more: Any) -> Run:
    return customers.write(access, text, **more).run


def answer_to(approval: Approval, yes: bool = True, **changes: Any) -> Answer:
    now = Approval.objects.get(pk=approval.pk)
    fields = {"id": uuid.uuid4(), "yes": yes, "version": now.version, "action_digest": now.action_digest}
    return Answer(**fields | changes)


def confirm(access: Access, approval: Approval, yes: bool = True, **changes: Any) -> decisions.Taken:
    return customers.confirm(access, approval.pk, answer_to(approval, yes, **changes))


def customer_rule(tool: str = "pay", **columns: Any) -> Rule:
    """A rule under which the customer confirms calls of a tool."""
    return rule(f"{tool}-confirmed", tool=tool, answered_by="customer", **columns)


def rule(name: str, **columns: Any) -> Rule:
    made = Rule.objects.create(name=name, verdict="ask", **columns)
    with ledger.transaction():
        ledger.record(ledger.CONFIGURATION, "rule.created", {"name": name})
    return made


def read(access: Access) -> Conversation:
    return Conversation.objects.get(pk=access.conversation.pk)
