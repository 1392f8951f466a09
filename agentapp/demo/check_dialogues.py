"""The concierge's dialogues, played through the real worker and the REST API, each checked for its outcome.

Its model's replies are written down in `guided_scenarios`. What is checked here was decided by code: what is called,
what is asked for, who confirms and who speaks.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agentapp.demo import guided_scenarios as dialogues
from agentapp.demo.client import CheckFailed, Client, wait_for
from agentapp.demo.guided_scenarios import Dialogue, Turn
from agentapp.demo.models import Ticket


@dataclass(frozen=True)
class Shop:
    """Who speaks with the product: a program that starts runs, the shop's chat and a team member."""

    starter: Client
    chat: Client
    person: Client


@dataclass
class Played:
    """A dialogue under way."""

    shop: Shop
    dialogue: Dialogue
    conversation: dict[str, Any]

    def say(self, turn: Turn) -> dict[str, Any]:
        """The customer says something. Returns the run once it has ended or asks for something."""
        started = self.shop.starter.post(
            "/runs",
            {
                "agent": "concierge",
                "input": turn.says,
                "customer": self.dialogue.customer,
                "conversation": self.conversation["key"],
                "script": turn.script,
            },
        )
        return self.rested(started["id"])

    def rested(self, run_id: str) -> dict[str, Any]:
        def look() -> Any:
            run = self.shop.starter.get(f"/runs/{run_id}")
            return run if run["state"] not in ("queued", "running") else None

        run: dict[str, Any] = wait_for(f"an answer in {self.dialogue.name}", look)
        return run

    def seen(self) -> dict[str, Any]:
        """The conversation as its customer sees it."""
        found: dict[str, Any] = self.shop.chat.get(f"/conversations/{self.conversation['id']}/customer")
        return found

    def calls(self, run: dict[str, Any]) -> list[str]:
        trace = self.shop.starter.get(f"/runs/{run['id']}/trace")
        return [call["tool"] for step in trace["steps"] for call in step["calls"]]

    def expect(self, what: str, found: object, wanted: object) -> None:
        if found != wanted:
            raise CheckFailed(f"{self.dialogue.name}: {what} should be {wanted!r}, but is {found!r}.")


def play(shop: Shop) -> int:
    """Play every dialogue. Returns how many there were. Raises CheckFailed."""
    for dialogue, look in _LOOKS:
        key = f"check-{uuid.uuid4().hex[:8]}"
        opened = shop.chat.post("/conversations", {"agent": "concierge", "key": key, "customer": dialogue.customer})
        look(Played(shop, dialogue, {"id": opened["id"], "key": key}))
    return len(_LOOKS)


def _missing_number(played: Played) -> None:
    asked, told = played.dialogue.turns
    played.expect("what was called", played.calls(played.say(asked)), [])
    [needed] = played.seen()["needed"]
    played.expect("what is asked for", (needed["name"], needed["choices"]), ("order number", ["58244", "58102"]))
    run = played.say(told)
    played.expect("what was called then", played.calls(run), ["follow_order"])
    played.expect("what is needed then", played.seen()["needed"], [])


def _somebody_elses_order(played: Played) -> None:
    played.expect("what was called", played.calls(played.say(played.dialogue.turns[0])), [])
    played.expect("the customer's choices", [one["choices"] for one in played.seen()["needed"]], [["58177"]])


def _credit_cascade(played: Played) -> None:
    run = played.say(played.dialogue.turns[0])
    played.expect("what was called", played.calls(run), ["get_store_credit", "recommend_products"])
    played.expect("the answer", "$25.00" in played.seen()["messages"][-1]["text"], True)


def _take_back(played: Played) -> None:
    returns = Ticket.objects.filter(subject="Return of order 58213")
    run = played.say(played.dialogue.turns[0])
    played.expect("the state before the customer said yes", (run["state"], returns.count()), ("waiting", 0))
    [asked] = played.seen()["confirmations"]
    played.shop.chat.post(
        f"/conversations/{played.conversation['id']}/confirmations/{asked['id']}",
        {
            "answer_id": str(uuid.uuid4()),
            "yes": True,
            "version": asked["version"],
            "action_digest": asked["action_digest"],
        },
    )

    def ended() -> Any:
        found = played.shop.starter.get(f"/runs/{run['id']}")
        return found if found["state"] not in ("queued", "running", "waiting") else None

    played.expect("the state at the end", wait_for("the return to be opened", ended)["state"], "succeeded")
    played.expect("how many returns there are", returns.count(), 1)


def _take_over(played: Played) -> None:
    conversation = f"/conversations/{played.conversation['id']}"
    run = played.say(played.dialogue.turns[0])
    seen = played.seen()
    played.expect("who speaks next", (seen["mode"], seen["status"]), ("manual", "person_wanted"))
    kept = played.shop.chat.post(f"{conversation}/messages", {"text": "Is anybody there?"})
    played.expect("who has spoken last", kept["messages"][-1]["who"], "customer")
    played.shop.person.post(f"/runs/{run['id']}/take_over", {})
    played.shop.person.post(f"/runs/{run['id']}/messages", {"text": "I am, Tomas. Let me look into it."})
    seen = played.seen()
    played.expect("who answered", (seen["messages"][-1]["who"], seen["status"]), ("person", "person"))
    played.shop.person.post(f"/runs/{run['id']}/hand_back", {})
    played.expect("who speaks then", played.seen()["mode"], "auto")


_LOOKS: tuple[tuple[Dialogue, Callable[[Played], None]], ...] = (
    (dialogues.MISSING_NUMBER, _missing_number),
    (dialogues.SOMEBODY_ELSES_ORDER, _somebody_elses_order),
    (dialogues.CREDIT_CASCADE, _credit_cascade),
    (dialogues.TAKE_BACK, _take_back),
    (dialogues.TAKE_OVER, _take_over),
)
