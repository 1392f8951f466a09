"""Situations the concierge meets, with its model's replies written down.

What code decides is not written here: which guidelines follow from others, which tools are evaluated together, which
values a customer may name and what is asked for first.
"""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Turn:
    """One message from a customer, and what the concierge's model says about it, step by step."""

    says: str
    script: list[dict[str, Any]]


@dataclass(frozen=True)
class Dialogue:
    """A conversation with one customer."""

    name: str
    customer: str
    turns: tuple[Turn, ...] = field(default=())


MISSING_NUMBER = Dialogue(
    name="missing-order-number",
    customer="Priya Nair",
    turns=(
        Turn(
            "Hi! When does my parcel come?",
            [
                {
                    "matched": {"where-is-my-order": "She asks when it comes."},
                    "evaluations": {
                        "follow_order": {
                            "state": "needs_to_run",
                            "why": "Where the parcel is has to be looked up; she named no order.",
                            "calls": [{}],
                        }
                    },
                    "says": "I am glad to look, Priya. Which order do you mean: 58244 or 58102?",
                }
            ],
        ),
        Turn(
            "58244, the tea.",
            [
                {
                    "matched": {"where-is-my-order": "She still wants to know where it is."},
                    "evaluations": {"follow_order": [{"order_id": "58244"}]},
                },
                {"says": "Order 58244 was placed today and is not packed yet; it goes out with the next van."},
            ],
        ),
    ),
)

SOMEBODY_ELSES_ORDER = Dialogue(
    name="somebody-elses-order",
    customer="Jon Okafor",
    turns=(
        Turn(
            "Where is order 58213?",
            [
                {
                    "matched": {"where-is-my-order": "He asks where an order is."},
                    "evaluations": {"follow_order": [{"order_id": "58213"}]},
                    "says": "I find no order 58213 of yours, Jon. Do you mean 58177?",
                }
            ],
        ),
    ),
)

CREDIT_CASCADE = Dialogue(
    name="credit-cascade",
    customer="Priya Nair",
    turns=(
        Turn(
            "What could I get for my store credit?",
            [
                {"matched": {"store-credit": "She asks about her credit."}},
                {
                    "matched": {"credit-to-spend": "There are $25.00 left."},
                    "evaluations": {"recommend_products": [{"budget": 25.0}]},
                },
                {"says": "You have $25.00 left, Priya. It buys 100 paper filters for $18.90, or Assam tea for $14.50."},
            ],
        ),
    ),
)

TAKE_BACK = Dialogue(
    name="take-back",
    customer="Ana Pereira",
    turns=(
        Turn(
            "The kettle of order 58213 came cracked. I want to send it back.",
            [
                {
                    "matched": {"came-damaged": "The glass is cracked.", "wants-to-send-back": "She says so."},
                    "evaluations": {
                        "search_policy": [{"text": "goods damaged in transit"}],
                        "open_return": [{"order_id": "58213", "reason": "damaged"}],
                    },
                },
                {
                    "says": "I am sorry about the kettle, Ana. The return is open, and the label is in your mail. "
                    "Section 3.2: the money comes back in full.",
                    "claims": ["open_return"],
                },
            ],
        ),
    ),
)

TAKE_OVER = Dialogue(
    name="take-over",
    customer="Tomas Lindqvist",
    turns=(
        Turn(
            "This is the third time I write. I want to talk to a human, now.",
            [
                {
                    "matched": {"wants-a-person": "He asks for a human.", "is-upset": "It is the third time."},
                    "evaluations": {"call_a_person": [{"about": "Writes for the third time, and nobody answered"}]},
                },
                {
                    "says": "You are right, Tomas, and I am sorry. A colleague reads this and answers you here.",
                    "claims": ["call_a_person"],
                },
            ],
        ),
    ),
)

DIALOGUES = (MISSING_NUMBER, SOMEBODY_ELSES_ORDER, CREDIT_CASCADE, TAKE_BACK, TAKE_OVER)
