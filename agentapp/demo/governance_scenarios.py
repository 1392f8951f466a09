"""Situations of the tour: each shows one part of how people govern what the agent does.

They can be played any number of times, so each play is a conversation of its own and works whatever was decided
before.
"""

from typing import Any

from agentapp.demo.scenarios import Scenario, reply

# The limit of the tour's grant; beyond it a person is asked.
GRANTED_AT_MOST = 20


def _credit(
    name: str, customer: tuple[str, str], amount: float, reason: str, why: str, route: str = "order_status"
) -> Scenario:
    """One credit for one customer, given by number and name."""
    number, called = customer
    arguments = {"customer_id": number, "amount": amount, "reason": reason}
    return Scenario(
        name=name,
        agent="support",
        route=route,
        input=f"Customer {number}, {called}, had trouble with us: {reason}. See what we can do.",
        customer=called,
        conversation=name,
        script=[
            reply(
                "I look up the customer, and what we may offer.",
                ("call_customer", "get_customer", {"customer_id": number}),
                ("call_policy", "search_policy", {"text": "store credit late delivery small flaw"}),
                tokens=(2970, 0, 96),
            ),
            reply(why, ("call_credit", "issue_store_credit", arguments), tokens=(3620, 2944, 104)),
            reply(f"What came of the credit for {called} stands in this run.", tokens=(3790, 3584, 31)),
        ],
    )


_TOMAS, _JON, _VIKTOR = ("40601", "Tomas Lindqvist"), ("40233", "Jon Okafor"), ("40418", "Viktor Hale")

WRONG_KETTLES = Scenario(
    name="wrong-kettles",
    agent="support",
    route="refund_investigation",
    input="Order 58102: Priya Nair writes that both glass kettles came in the wrong size. She will send them back.",
    customer="Priya Nair",
    conversation="wrong-kettles",
    script=[
        reply(
            "I look up the order, the customer, and whether anything was refunded.",
            ("call_order", "get_order", {"order_id": "58102"}),
            ("call_customer", "get_customer", {"customer_id": "40552"}),
            ("call_refunds", "list_refunds", {"order_id": "58102"}),
            tokens=(3310, 0, 128),
        ),
        reply(
            "Both kettles were the wrong ones, and Priya has been with us for years. I propose to return what the two "
            "cost, before the parcel is back.",
            (
                "call_refund",
                "refund_payment",
                {
                    "order_id": "58102",
                    "amount": 369.0,
                    "reason": "wrong_item",
                    "message": "Hi Priya, sorry about the wrong kettles. We have refunded $369.00 of order 58102.",
                },
            ),
            tokens=(4480, 3296, 171),
        ),
        reply("What was decided about the refund for order 58102 stands in this run.", tokens=(4702, 4416, 37)),
    ],
)

UNANSWERED_TICKET = Scenario(
    name="unanswered-ticket",
    agent="support",
    route="order_status",
    input="Ticket 88155: Lena Fischer mentions a chip inside the lid, and keeps the teapot. Close it if that is all.",
    customer="Lena Fischer",
    conversation="unanswered-ticket",
    script=[
        reply("I read the ticket.", ("call_ticket", "read_ticket", {"ticket_id": "88155"}), tokens=(2904, 0, 44)),
        reply(
            "Lena keeps the teapot and asks for nothing, so I propose to close the ticket without an answer.",
            ("call_close", "close_ticket", {"ticket_id": "88155", "code": "no_answer_needed"}),
            tokens=(3318, 2880, 82),
        ),
        reply("What was decided about ticket 88155 stands in this run.", tokens=(3461, 3264, 26)),
    ],
)

CREDIT_TO_GRANT = _credit(
    "credit-to-grant", _TOMAS, 10.0, "A cup of order 56011 had a scratch", "Section 5.2 fits: I propose $10.00."
)
CREDIT_SMALL = _credit(
    "credit-small", _TOMAS, 12.0, "The catalogue came twice", "A small annoyance, section 5.2: I propose $12.00."
)
CREDIT_LARGE = _credit(
    "credit-large", _TOMAS, 35.0, "Order 56011 came very late", "It came very late, section 5.2: I propose $35.00."
)
CREDIT_TO_UNDO = _credit(
    "credit-to-undo", _VIKTOR, 15.0, "The filters came a day late", "A day late, section 5.2: I propose $15.00."
)
GOODWILL_FIRST = _credit(
    "goodwill-first", _JON, 30.0, "Order 58177 was packed late", "Section 5.2 fits: I propose $30.00.", "goodwill"
)
GOODWILL_AGAIN = _credit(
    "goodwill-again", _JON, 25.0, "We sent him two wrong emails", "Section 5.2 fits: I propose $25.00.", "goodwill"
)

LATE_PARCELS = Scenario(
    name="late-parcels",
    agent="support",
    route="order_status",
    input=(
        "Halden Freight was late last week. Ana Pereira (40117), Lena Fischer (40310) and Priya Nair (40552) waited: "
        "see what we can do."
    ),
    customer="",
    conversation="",
    script=[
        reply(
            "I look at what we may offer for a late delivery.",
            ("call_policy", "search_policy", {"text": "store credit late delivery"}),
            tokens=(2881, 0, 61),
        ),
        reply(
            "Section 5.2 allows a small credit for a late delivery. I propose $5.00 for each of the three.",
            *(
                (f"call_{number}", "issue_store_credit",
                 {"customer_id": number, "amount": 5.0, "reason": "Halden Freight was late"})
                for number in ("40117", "40310", "40552")
            ),
            tokens=(3390, 2848, 187),
        ),
        reply("What was decided about the three credits stands in this run.", tokens=(3702, 3328, 29)),
    ],
)  # fmt: skip

_LATE_CREDITS = [
    {"customer_id": number, "amount": 8.0, "reason": "Halden Freight was late again"}
    for number in ("40117", "40310", "40552")
]
PLANNED_CREDITS = Scenario(
    name="planned-credits",
    agent="support",
    route="order_status",
    input=(
        "Halden Freight was late again. Ana Pereira (40117), Lena Fischer (40310) and Priya Nair (40552) waited: "
        "see what we can do."
    ),
    customer="",
    conversation="",
    script=[
        reply(
            "I look at what we may offer for a late delivery.",
            ("call_policy", "search_policy", {"text": "store credit late delivery"}),
            tokens=(2890, 0, 62),
        ),
        reply(
            "Section 5.2 allows a small credit for a late delivery. I propose all three as one plan.",
            (
                "call_plan",
                "propose_plan",
                {
                    "purpose": "$8.00 of store credit for each customer whose parcel was late.",
                    "calls": [{"tool": "issue_store_credit", "arguments": credit} for credit in _LATE_CREDITS],
                },
            ),
            tokens=(3402, 2848, 214),
        ),
        reply(
            "The plan is approved: Ana and Lena first.",
            ("call_ana", "issue_store_credit", _LATE_CREDITS[0]),
            ("call_lena", "issue_store_credit", _LATE_CREDITS[1]),
            tokens=(3811, 3328, 96),
        ),
        reply(
            "Priya has waited longest, so I give her $18.00.",
            ("call_priya", "issue_store_credit", _LATE_CREDITS[2] | {"amount": 18.0}),
            tokens=(3984, 3712, 71),
        ),
        reply("What was decided about the three credits stands in this run.", tokens=(4105, 3904, 29)),
    ],
)

MOVED_OFFICE = Scenario(
    name="moved-office",
    agent="support",
    route="order_status",
    input="Priya Nair calls: please send order 58244 to her office, 900 Congress Avenue, Austin, TX 78701.",
    customer="Priya Nair",
    conversation="moved-office",
    script=[
        reply(
            "I look up where the order is, and our policy on addresses.",
            ("call_order", "get_order", {"order_id": "58244"}),
            ("call_policy", "search_policy", {"text": "changing delivery address"}),
            tokens=(3012, 0, 84),
        ),
        reply(
            "The order is not packed yet, so section 4.1 allows the change. Priya has called about it herself.",
            (
                "call_address",
                "change_delivery_address",
                {"order_id": "58244", "address": "Priya Nair, 900 Congress Avenue, Austin, TX 78701"},
            ),
            tokens=(3764, 2992, 118),
        ),
        reply("What was decided about the address of order 58244 stands in this run.", tokens=(3950, 3712, 34)),
    ],
)

_TEAPOT: dict[str, Any] = {
    "order_id": "58190",
    "amount": 80.0,
    "reason": "changed_mind",
    "message": "Hi Lena, your teapot is back with us, and we have refunded your order 58190.",
}
CHANGED_MIND = Scenario(
    name="changed-mind",
    agent="support",
    route="refund_investigation",
    input="Order 58190: Lena Fischer has sent the teapot back, unused. She has changed her mind.",
    customer="Lena Fischer",
    conversation="changed-mind",
    script=[
        reply(
            "I look up the order, and our policy on returns.",
            ("call_order", "get_order", {"order_id": "58190"}),
            ("call_policy", "search_policy", {"text": "returns of undamaged goods refund"}),
            tokens=(3040, 0, 88),
        ),
        reply(
            "The teapot came back unused within 30 days. I propose to refund what Lena has paid.",
            ("call_refund", "refund_payment", _TEAPOT),
            tokens=(3822, 3008, 132),
        )
        | {
            "answer": {
                "text": "No, it should not be: by section 3.1 the goods are refunded and shipping is not. Of the "
                "$80.00 are $8.00 shipping, so I propose $72.00.",
                "tool_calls": [
                    {"id": "call_instead", "name": "refund_payment", "arguments": _TEAPOT | {"amount": 72.0}}
                ],
            }
        },
        reply("What was decided about the refund for order 58190 stands in this run.", tokens=(4210, 3776, 35)),
    ],
)

SCENARIOS = (
    WRONG_KETTLES,
    UNANSWERED_TICKET,
    CREDIT_TO_GRANT,
    CREDIT_SMALL,
    CREDIT_LARGE,
    LATE_PARCELS,
    PLANNED_CREDITS,
    MOVED_OFFICE,
    CHANGED_MIND,
    CREDIT_TO_UNDO,
    GOODWILL_FIRST,
    GOODWILL_AGAIN,
)
