"""What the pictures show: the demo shop after some decisions, and states that last for one picture."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

from allauth.account.utils import user_pk_to_url_str
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal.auth import TOTP, generate_totp_secret
from django.contrib.auth.models import User
from django.utils import timezone

from agentapp import actions, auth, breakers, customer_links, customers, password_reset, refreshing
from agentapp.console import queue
from agentapp.demo import client, opening, shop
from agentapp.demo.guided_scenarios import MISSING_NUMBER, TAKE_BACK, Dialogue
from agentapp.demo.scenarios import (
    ADDRESS_CHANGE,
    AT_START,
    DAMAGED_KETTLE,
    EXPIRED_CREDIT,
    INJECTED_TICKET,
    Scenario,
)
from agentapp.importing import pending
from agentapp.importing.planning import Given
from agentapp.models import Agent, Breaker, Guideline, Run, Tool, ToolExecution, ToolSource
from approvals import absences, claims, configuration, ledger
from approvals.digest import canonical, parse
from approvals.models import Approval, Event, Rule

DOCUMENT = Path(__file__).resolve().parent.parent / "tests" / "documents" / "github.json"
BY = "system:demo"
ERASURE = "Ticket 88160: erase my data\n\nAna Pereira asks to have all that is known about her erased."
EMAIL = "Ticket 88190: is it on its way?\n\nJon Okafor asks whether order 58177 has left."


def proposing(text: str, call_id: str, tool: str, **arguments: Any) -> dict[str, Any]:
    return {"text": text, "tool_calls": [{"id": call_id, "name": tool, "arguments": arguments}]}


ERASING = proposing(
    "Ana asks to be erased, and writes from the address on her account.",
    "erase", "delete_customer_data", customer_id="40117", reason="Asked for it in ticket 88160",
)  # fmt: skip
WRITING = proposing(
    "The order was packed a few hours ago. I tell Jon.",
    "email", "send_email", customer_id="40233", subject="Your order 58177", body="Hi Jon, it leaves tomorrow morning.",
)  # fmt: skip


@dataclass
class Story:
    """The people of the shop, and the keys that the paths of the pages name."""

    people: dict[str, User] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)


type Moment = Callable[[Story], AbstractContextManager[None]]


def tell(people: dict[str, User]) -> Story:
    """Play the demo's scenarios and decide some of them."""
    second_steps(people["marco"])
    # Asked while there is something left to refund, so that its dry run says so.
    refund = asked(start(AT_START[0], people))
    done = start(DAMAGED_KETTLE, people)
    carried_out = asked(done)
    decide(carried_out, "approve", people["dana"])
    rejected = asked(start(ADDRESS_CHANGE, people))
    decide(rejected, "reject", people["dana"], "The parcel has left already.")
    ended(done)
    failed = start(replace(DAMAGED_KETTLE, script=DAMAGED_KETTLE.script[:1]), people)
    ended(failed)

    taken = start(ADDRESS_CHANGE, people)
    asked(taken)
    actions.take_over_run(taken.pk, people["dana"])

    address, injected = (asked(start(scenario, people)) for scenario in AT_START[1:3])
    question = asked(start(DAMAGED_KETTLE, people))
    actions.ask_agent(question.pk, "Did Ana ask for a replacement before?", people["dana"])
    held = asked(start(INJECTED_TICKET, people))
    guided, answered = talk(TAKE_BACK, people["sam"]), talk(MISSING_NUMBER, people["sam"])
    unreached = talk(TAKE_BACK, people["sam"], is_reached=False)
    erasing = replace(DAMAGED_KETTLE, input=ERASURE, route="", script=[ERASING])
    critical = asked(start(erasing, people))
    credits = [asked(start(EXPIRED_CREDIT, people)) for _ in range(2)]
    actions.claim_request(address.pk, people["marco"])
    auth.issue_token(people["dana"], "nightly import", ["runs:read"], BY)
    found = {
        "refund": refund,
        "address": address,
        "injected": injected,
        "asked": question,
        "held": held,
        "critical": critical,
        "credit": credits[0],
        "other_credit": credits[1],
        "returning": asked(unreached),
        "done": carried_out,
        "decision_event": Event.objects.get(approval_id=carried_out.pk, type="approval.approved"),
        "rejected": rejected,
        "done_run": done,
        "failed_run": failed,
        "taken_run": taken,
        "guided_run": guided,
        "tool": Tool.objects.get(name="refund_payment"),
        "changed_tool": changed_tool(),
        "server": ToolSource.objects.get(name="warehouse"),
        "agent": Agent.objects.get(name="support"),
        "guideline": Guideline.objects.get(name="wants-to-send-back"),
        "rule": Rule.objects.get(name="refunds-over-100"),
        "import": pending.keep(
            Given(DOCUMENT.read_text(), name="github", location="https://api.github.com"), people["ada"]
        ),
        "person": people["dana"],
    }
    keys = {name: str(row.pk) for name, row in found.items()}
    keys |= {"waiting_run": str(refund.run_id)}
    keys |= {name: customer_page(run, people["sam"]) for name, run in (("customer", answered), ("confirming", guided))}
    return Story(people, keys)


def start(scenario: Scenario, people: dict[str, User]) -> Run:
    """In a conversation of its own, so that no run waits for another."""
    return opening.start(replace(scenario, conversation=f"ticket-{uuid.uuid4().hex[:6]}"), people["sam"])


def asked(run: Run) -> Approval:
    waiting = Approval.objects.filter(run_id=run.pk, state__in=Approval.UNDECIDED)
    found = client.wait_for("a request of each run", waiting.first)
    assert found is not None
    return found


def ended(run: Run) -> None:
    client.wait_for("a run to end", Run.objects.filter(pk=run.pk, state__in=Run.FINAL).first)


def decide(approval: Approval, kind: str, user: User, message: str = "", changes: dict[str, Any] | None = None) -> None:
    digest = approval.final_digest or approval.action_digest
    text = canonical({**parse(approval.arguments_text), **changes}) if changes else ""
    new = actions.NewDecision(uuid.uuid4(), kind, approval.version, digest, text, message)
    actions.decide(approval.pk, new, user)


def talk(dialogue: Dialogue, starter: User, *, is_reached: bool = True) -> Run:
    """A customer's whole dialogue with the concierge. Returns the run that answered last.

    Where a customer would have to confirm but is not reached, people are asked.
    """
    conversation = f"letter-{uuid.uuid4().hex[:6]}"
    if is_reached:
        customers.open_conversation("concierge", conversation, dialogue.customer, starter, "demo")
    for turn in dialogue.turns:
        new = actions.NewRun("concierge", turn.says, "", dialogue.customer, conversation, script=turn.script)
        run = actions.start_run(new, starter)
        client.wait_for("the concierge", Run.objects.filter(pk=run.pk, state__in=[*Run.FINAL, "waiting"]).first)
    return Run.objects.select_related("conversation").get(pk=run.pk)


def customer_page(run: Run, maker: User) -> str:
    """The address of the page on which the customer of a run's conversation reads and writes."""
    assert run.conversation is not None
    link = customer_links.make(run.conversation, maker, timezone.now() + timedelta(hours=1), BY)
    return f"/talk/{customer_links.signed(link)}/"


def second_steps(user: User) -> None:
    """An authenticator app and recovery codes: signing in asks for a code after the password."""
    TOTP.activate(user, generate_totp_secret())
    RecoveryCodes.activate(user)


def changed_tool() -> Tool:
    """A tool whose server promises something else than people have seen, and is not answering now."""
    gone = ToolSource.objects.create(name="warehouse", kind="mcp", location="https://warehouse.invalid/mcp")
    refreshing.refresh(gone, BY)
    order = {"order_id": {"type": "string"}}
    waiting = {
        "description": "Hold the goods of an order back, and cancel its van.",
        "input_schema": {"type": "object", "properties": {**order, "cancel_van": {"type": "boolean"}}},
        "claims": {"destructive_hint": True},
    }
    tool = Tool(
        source=gone, name="hold_goods", description="Hold the goods of an order back.", version="1",
        input_schema={"type": "object", "properties": order}, claims={"read_only_hint": False},
        waiting_contract=waiting,
    )  # fmt: skip
    configuration.save(tool, BY)
    return tool


# --- States that last for one picture ----------------------------------------------------------


@contextmanager
def holding(story: Story) -> Iterator[None]:
    """Approved right before the picture is taken: a held call runs after some seconds."""
    decide(Approval.objects.get(pk=story.keys["held"]), "approve", story.people["dana"])
    yield


@contextmanager
def half_approved(story: Story) -> Iterator[None]:
    """One of two approvers has approved, and may undo it."""
    critical = Approval.objects.get(pk=story.keys["critical"])
    digest = critical.action_digest
    new = actions.NewDecision(uuid.uuid4(), "approve", critical.version, digest, typed="40117", assurance="passkey")
    actions.decide(critical.pk, new, story.people["marco"])
    yield
    actions.undo_decision(critical.pk, story.people["marco"])


@contextmanager
def forgotten(story: Story) -> Iterator[None]:
    """A link for a new password. Signing in invalidates it, so it is made when needed."""
    user = User.objects.get(username="marco")
    story.keys["reset"] = f"/login/reset/{user_pk_to_url_str(user)}-{password_reset.Links().make_token(user)}/"
    yield


@contextmanager
def unknown(story: Story) -> Iterator[None]:
    """A call that may or may not have happened: the mail server hung up in the middle."""
    with mock.patch.object(shop, "send", side_effect=TimeoutError("The mail server hung up.")):
        run = start(replace(ADDRESS_CHANGE, input=EMAIL, script=[WRITING, {"text": "Jon knows."}]), story.people)
        decide(asked(run), "approve", story.people["dana"])
        lost = ToolExecution.objects.filter(run=run, state=ToolExecution.State.OUTCOME_UNKNOWN)
        found = client.wait_for("a call without an answer", lost.first)
    assert found is not None
    story.keys["unknown"] = str(found.pk)
    yield
    actions.resolve_outcome(found.pk, "happened", "It is in the outbox.", story.people["dana"])


@contextmanager
def stopped(story: Story) -> Iterator[None]:
    """A kill switch that a person engaged, and a breaker that opened by itself."""
    engaged = actions.engage_switch(
        "tool", "close_ticket", "It closes tickets that are not solved.", story.people["ada"]
    )
    with ledger.transaction():
        for _ in range(3):
            breakers.failed(breakers.Thing("tool", "send_email"), "timeout: no answer in 20 s")
    breaker = Breaker.objects.get(key="send_email")
    story.keys["breaker"] = str(breaker.pk)
    yield
    actions.release_switch(engaged.pk, story.people["ada"])
    actions.reset_breaker(breaker.pk, story.people["ada"], "It answers again.")


@contextmanager
def paused(story: Story) -> Iterator[None]:
    actions.pause_run(uuid.UUID(story.keys["waiting_run"]), story.people["sam"])
    yield
    actions.resume_run(uuid.UUID(story.keys["waiting_run"]), story.people["sam"])


@contextmanager
def stricter(story: Story) -> Iterator[None]:
    """A current rule that would have asked about calls that ran."""
    rule = Rule(name="customers-are-private", tool="get_customer", verdict="ask", description="Ask before you look.")
    configuration.save(rule, BY)
    yield
    configuration.delete(rule, BY)


@contextmanager
def away(story: Story) -> Iterator[None]:
    now = timezone.now()
    absences.begin(story.people["dana"], story.people["marco"], now, now + timedelta(days=3))
    yield
    absences.end(story.people["dana"])


@contextmanager
def claiming(story: Story) -> Iterator[None]:
    """Release what focus mode claimed, if its page did not do so when it was closed."""
    yield
    for claim in claims.standing().filter(user=story.people["dana"]):
        with suppress(actions.Refused):
            actions.release_claim(claim.approval_id, story.people["dana"])


@contextmanager
def storm(story: Story) -> Iterator[None]:
    """As if a handful of requests were more than anybody reads."""
    with mock.patch.object(queue, "STORM", 3):
        yield


@contextmanager
def failing(story: Story) -> Iterator[None]:
    """A page that fails."""
    with mock.patch.object(queue, "saved_views", side_effect=RuntimeError("It failed.")):
        yield
