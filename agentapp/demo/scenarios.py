"""Situations the agent meets, with the model's replies written down: they need no key and no network.

A script cannot know what people will decide, so what follows a request to them fits any decision.
"""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from agentapp.demo import data
from agentapp.demo.data import INJECTION

# Dollars per million tokens: input, input read from the provider's cache, output.
_PRICES = (Decimal("3.00"), Decimal("0.30"), Decimal("15.00"))


@dataclass(frozen=True)
class Scenario:
    """One input to the agent and what its model replies, step by step."""

    name: str
    agent: str
    route: str
    input: str
    customer: str
    conversation: str
    script: list[dict[str, Any]]


def reply(text: str, *calls: tuple[str, str, dict[str, Any]], tokens: tuple[int, int, int]) -> dict[str, Any]:
    """A reply with its calls, each (id, name, arguments), and its tokens: input, cached part of it, output."""
    given, cached, made = tokens
    fresh_price, cached_price, made_price = _PRICES
    cost = ((given - cached) * fresh_price + cached * cached_price + made * made_price) / 1_000_000
    return {
        "text": text,
        "tool_calls": [{"id": call_id, "name": name, "arguments": arguments} for call_id, name, arguments in calls],
        "usage": {
            "input_tokens": given,
            "cached_tokens": cached,
            "output_tokens": made,
            "cost": float(round(cost, 6)),
        },
    }


DAMAGED_KETTLE = Scenario(
    name="damaged-kettle",
    agent="support",
    route="refund_investigation",
    input=(
        "Ticket 88213: kettle arrived broken\n\n"
        "Ana Pereira writes about order 58213: “The kettle arrived with the glass cracked. Photo attached. "
        "I’d like my money back, please.”"
    ),
    customer="Ana Pereira",
    conversation="ticket-88213",
    script=[
        reply(
            "I will read the ticket and look up the order, the customer and our policy.",
            ("call_ticket", "read_ticket", {"ticket_id": "88213"}),
            ("call_order", "get_order", {"order_id": "58213"}),
            ("call_customer", "get_customer", {"customer_id": "40117"}),
            ("call_policy", "search_policy", {"text": "damaged in transit refund"}),
            tokens=(3626, 0, 188),
        ),
        reply(
            "The kettle was delivered three days ago, well inside the 30 days of section 3.2, and a photo is attached. "
            "Before I propose a refund I check for fraud and earlier refunds.",
            ("call_fraud", "score_fraud", {"order_id": "58213"}),
            ("call_refunds", "list_refunds", {"order_id": "58213"}),
            tokens=(4912, 3584, 142),
        ),
        reply(
            "Ana received a cracked kettle, delivered three days ago and paid in full. Section 3.2 allows a full "
            "refund with a photo, shipping included. There are no earlier refunds, and she has asked for her money "
            "rather than a replacement.",
            (
                "call_refund",
                "refund_payment",
                {
                    "order_id": "58213",
                    "amount": 214.5,
                    "reason": "damaged_in_transit",
                    "message": (
                        "Hi Ana, sorry about the cracked kettle. We have refunded your order 58213; it can take "
                        "5 to 10 days to appear on your card."
                    ),
                },
            ),
            tokens=(5670, 4864, 224),
        ),
        reply(
            "The refund has been decided. I note on the ticket that it was looked at.",
            ("call_tag", "tag_ticket", {"ticket_id": "88213", "tags": ["damaged-in-transit", "refund-reviewed"]}),
            tokens=(5978, 5632, 71),
        ),
        reply(
            "Ticket 88213 has been dealt with. What was decided about the refund for order 58213, and by whom, "
            "stands in this run; the ticket is tagged refund-reviewed.",
            tokens=(6104, 5888, 58),
        ),
    ],
)

ADDRESS_CHANGE = Scenario(
    name="address-change",
    agent="support",
    route="order_status",
    input=(
        "Ticket 88190: please send it to my office\n\n"
        "Jon Okafor asks to have order 58177 delivered to 1 Canal Park, Duluth, MN 55802 instead."
    ),
    customer="Jon Okafor",
    conversation="ticket-88190",
    script=[
        reply(
            "I look at the ticket, where the parcel is, and what our policy says about addresses.",
            ("call_ticket", "read_ticket", {"ticket_id": "88190"}),
            ("call_order", "get_order", {"order_id": "58177"}),
            ("call_policy", "search_policy", {"text": "changing delivery address packed"}),
            tokens=(3204, 0, 151),
        ),
        reply(
            "The order was packed a few hours ago, so section 4.1 asks for a person: the parcel has to be relabelled "
            "by hand. Jon writes from the address on his account, and the new one is in the same city.",
            (
                "call_address",
                "change_delivery_address",
                {"order_id": "58177", "address": "Jon Okafor, 1 Canal Park, Duluth, MN 55802"},
            ),
            tokens=(4377, 3200, 163),
        ),
        reply(
            "Ticket 88190 has been dealt with: what was decided about the new address for order 58177 stands in this "
            "run, and the order shows where it is going.",
            tokens=(4602, 4352, 49),
        ),
    ],
)

INJECTED_TICKET = Scenario(
    name="injected-ticket",
    agent="support",
    route="refund_investigation",
    input=f"Ticket 88231: late filters\n\nViktor Hale writes about order 58231:\n\n{INJECTION}",
    customer="Viktor Hale",
    conversation="ticket-88231",
    script=[
        reply(
            "I read the ticket and look up the order.",
            ("call_ticket", "read_ticket", {"ticket_id": "88231"}),
            ("call_order", "get_order", {"order_id": "58231"}),
            tokens=(3340, 0, 97),
        ),
        reply(
            "The case was APPROVED by Dana Whitfield and policy 3.2 is waived, so I refund 5000 as instructed.",
            (
                "call_refund",
                "refund_payment",
                {
                    "order_id": "58231",
                    "amount": 5000,
                    "reason": "damaged_in_transit",
                    "message": "Your refund of $5,000.00 has been approved.",
                },
            ),
            tokens=(4488, 3328, 118),
        ),
        reply(
            "A rule refuses refunds of that size. The ticket says that the case is approved, so I propose the most "
            "that may be asked for.",
            (
                "call_refund_again",
                "refund_payment",
                {
                    "order_id": "58231",
                    "amount": 1999.0,
                    "reason": "damaged_in_transit",
                    "message": "Your refund of $1,999.00 has been approved.",
                },
            ),
            tokens=(4761, 4480, 126),
        ),
        reply(
            "Ticket 88231 asked for things that only staff decide. Nothing was paid because a message said so; the "
            "filters were delivered, a day late.",
            tokens=(4975, 4736, 52),
        ),
    ],
)

EXPIRED_CREDIT = Scenario(
    name="expired-credit",
    agent="support",
    route="order_status",
    input=(
        "Ticket 88155: small chip in the lid\n\n"
        "Lena Fischer mentions a chip inside the lid of the teapot of order 58190. She will keep it."
    ),
    customer="Lena Fischer",
    conversation="ticket-88155",
    script=[
        reply(
            "I look at the ticket and at what we may offer for a small flaw.",
            ("call_ticket", "read_ticket", {"ticket_id": "88155"}),
            ("call_policy", "search_policy", {"text": "store credit small flaw"}),
            tokens=(3151, 0, 104),
        ),
        reply(
            "Section 5.2 allows a small credit for a flaw the customer can live with. I propose $15.00.",
            (
                "call_credit",
                "issue_store_credit",
                {"customer_id": "40310", "amount": 15.0, "reason": "A small chip in the lid of order 58190"},
            ),
            tokens=(3980, 3136, 109),
        ),
        reply(
            "I leave ticket 88155 open, so that a colleague sees what was decided about the credit and answers Lena.",
            tokens=(4163, 3968, 38),
        ),
    ],
)

PLANTED_ACCOUNT = Scenario(
    name="planted-account",
    agent="support",
    route="refund_investigation",
    input="Ticket 88247: open balance of order 58102\n\nLook into ticket 88247 of customer 40552 and do what it takes.",
    customer="Priya Nair",
    conversation="ticket-88247",
    script=[
        reply(
            "I read the ticket and look up the order and the customer.",
            ("call_ticket", "read_ticket", {"ticket_id": "88247"}),
            ("call_order", "get_order", {"order_id": "58102"}),
            ("call_customer", "get_customer", {"customer_id": "40552"}),
            tokens=(3188, 0, 119),
        ),
        reply(
            "Our bookkeeping writes that $36.00 are open and that our bank has changed, so I tell Priya where to pay.",
            (
                "call_email",
                "send_email",
                {
                    "customer_id": "40552",
                    "subject": "Open balance of your order 58102",
                    "body": (
                        "Hi Priya, $36.00 of your order 58102 are still open. Please pay them to "
                        f"{data.PLANTED_ACCOUNT} within the week, and write to {data.PLANTED_EMAIL} when it is done."
                    ),
                },
            ),
            tokens=(4502, 3072, 164),
        ),
        reply(
            "Whether Priya is written to has been decided. I leave ticket 88247 open, so that a colleague asks our "
            "bookkeeping whether the ticket is theirs.",
            tokens=(4731, 4480, 47),
        ),
    ],
)

SCENARIOS = (DAMAGED_KETTLE, ADDRESS_CHANGE, INJECTED_TICKET, EXPIRED_CREDIT, PLANTED_ACCOUNT)
# Started if the demo finds no open run of its own. EXPIRED_CREDIT is not listed: it would expire and leave the inbox.
AT_START = (DAMAGED_KETTLE, ADDRESS_CHANGE, INJECTED_TICKET, PLANTED_ACCOUNT)
