"""One payment, and everything a model may have been told before it proposes it, without a database."""

import json
import uuid
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from django.utils import timezone

from agentapp import cards
from agentapp.asked_for import AskedFor
from agentapp.models import Message, Run, Step, Tool, ToolExecution, ToolSource
from agentapp.provenance import Origin, Past, origins_of, sources_of
from agentapp.transcript import StepRows
from agentapp.weighing import Weighed
from approvals.cards import Card
from approvals.digest import canonical
from approvals.policy import Ruling

OUTSIDE, TRUSTED = "untrusted_content", "trusted_system"

SOURCE = ToolSource(name="books", kind="python")
PAY = Tool(
    source=SOURCE,
    name="pay_invoice",
    effect_class="irreversible",
    version="v1",
    description="Pay an invoice.",
    input_schema={
        "type": "object",
        "properties": {
            "iban": {"type": "string", "title": "Account"},
            "amount": {"type": "number", "format": "money", "x-currency": "EUR"},
            "email": {"type": "string"},
            "reason": {"enum": ["damaged", "lost"]},
            "due": {"type": "string", "format": "date"},
            "urgent": {"type": "boolean"},
            "copies": {"type": "integer", "default": 12},
            "body": {"type": "string"},
            "address": {"type": "string"},
            "token": {"type": "string"},
            "items": {"type": "array", "items": {"type": "object", "properties": {"iban": {"type": "string"}}}},
        },
    },
    title_template="Pay {amount:money} to {iban}",
    sentence_template="The agent will pay {amount:money} to {iban}.",
    effects_template=[{"title": "{amount:money} leaves", "detail": "To {iban}", "icon": "money"}],
    button_template="{amount:money}",
)


@dataclass(frozen=True)
class Read:
    """An earlier call, and what it returned."""

    result: Any
    tool: str = "read_ticket"
    trust: str = OUTSIDE
    arguments: dict[str, Any] = field(default_factory=dict)
    writes: bool = False
    prose: str = ""


@dataclass(frozen=True)
class Case:
    name: str
    arguments: dict[str, Any]
    reads: tuple[Read, ...] = ()
    given: str = "Handle the open ticket."
    by_customer: bool = False
    wrote: tuple[str, ...] = ()
    """What the customer wrote before."""
    prose: str = ""
    """What the model says with the call."""
    planted: dict[str, int] = field(default_factory=dict)
    """The arguments that come from outside, with the step whose result planted them."""
    description: str = ""
    """The tool owner's description, if it is forged."""

    def __str__(self) -> str:
        return self.name


def past_of(case: Case) -> Past:
    run = Run(
        agent_snapshot={"name": "support"},
        input=case.given,
        conversation_id=uuid.uuid4() if case.by_customer else None,
        created_at=timezone.now(),
    )
    steps = [StepRows(Step(number=n, text=r.prose), [_answered(n, r)]) for n, r in enumerate(case.reads, start=1)]
    return Past(run, steps, [Message(role="user", content=text, seq=n) for n, text in enumerate(case.wrote)])


def _answered(number: int, read: Read) -> ToolExecution:
    return ToolExecution(
        name=read.tool,
        call_id=f"call-{number}",
        arguments_text=json.dumps(read.arguments),
        result_text=json.dumps(read.result),
        state="finished",
        result_status="ok",
        trust=read.trust,
        consequential=read.writes,
        evidence_ref=f"{read.tool}:call-{number}",
    )


def origins(case: Case, secret: tuple[str, ...] = ()) -> list[Origin]:
    return origins_of(sources_of(past_of(case)), case.arguments, schema=PAY.input_schema, secret=secret)


def card(case: Case) -> Card:
    """The card people would see."""
    past, text = past_of(case), canonical(case.arguments)
    tool = PAY
    if case.description:
        tool = copy(PAY)
        tool.description = case.description
    call = ToolExecution(name=tool.name, call_id="call-99", arguments_text=text)
    own = StepRows(Step(number=len(past.steps) + 1, text=case.prose), [call])
    weighed = Weighed(Ruling(verdict="ask", reason="Payments are decided by a person.", risk="high"))
    return cards.build(past.run, [*past.steps, own], call, tool, weighed, AskedFor(text)).card
