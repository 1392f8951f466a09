"""The tour: each part of governance happens in the open shop, up to the act that is left to whoever watches.

What the others do — who asks, who approves first, what changes in the shop — is done here by the actions that pages and
programs use, as those people. The agent's part is driven by the worker that runs, wherever that is.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace

from django.contrib.auth.models import User
from django.urls import reverse

from agentapp import actions
from agentapp.demo import governance_scenarios as situations
from agentapp.demo import opening, shop
from agentapp.demo.models import Order
from agentapp.demo.scenarios import PLANTED_ACCOUNT, Scenario
from agentapp.models import Run, ToolExecution
from approvals.models import Approval, Grant

LOOKS = 300
GRANT_WHY = "Tour: small credits for Tomas need nobody this week"
OFFICES = ("Priya Nair, 15 Rainey Street, Austin, TX 78701", "Priya Nair, 88 Barton Springs Road, Austin, TX 78704")


class TourStopped(Exception):
    """What should have come did not; the message says what was waited for and what was seen."""


@dataclass(frozen=True)
class Sight:
    """Who opens which page, and what they do and see there."""

    who: str
    path: str
    then: str


@dataclass(frozen=True)
class Stage:
    """Where a part is played. `meanwhile` lets the worker come to it between two looks at the rows."""

    people: dict[str, User]
    meanwhile: Callable[[], None]

    def start(self, scenario: Scenario) -> Run:
        """Start a scenario as Sam, in a conversation of its own, so that it waits for no earlier one."""
        key = f"{scenario.conversation}-{uuid.uuid4().hex[:6]}" if scenario.conversation else ""
        return opening.start(replace(scenario, conversation=key), self.people["sam"])

    def asked(self, run: Run) -> list[Approval]:
        """What people are asked about in a run, once it waits for them."""

        def look() -> list[Approval]:
            run.refresh_from_db()
            if run.is_final:
                raise TourStopped(f"{run.reference} {run.state} before anybody was asked.")
            waits = run.state == Run.State.WAITING and run.waiting_for == "approval"
            found = Approval.objects.filter(run_id=run.pk, state=Approval.State.PENDING).order_by("created_at", "pk")
            return list(found) if waits else []

        return self.wait_for(f"{run.reference} to ask", look)

    def ended(self, run: Run) -> Run:
        """A run that has done what it was to do."""

        def look() -> bool:
            run.refresh_from_db()
            return run.is_final

        self.wait_for(f"{run.reference} to end", look)
        if run.state != Run.State.SUCCEEDED:
            raise TourStopped(f"{run.reference} {run.state}: {run.stop_reason}")
        return run

    def approve(self, approval: Approval, who: str) -> None:
        new = actions.NewDecision(
            id=uuid.uuid4(), type="approve", version=approval.version, action_digest=approval.action_digest
        )
        actions.decide(approval.pk, new, self.people[who])

    def wait_for[T](self, what: str, look: Callable[[], T]) -> T:
        """The first truthy value of `look`. Raises TourStopped when there is none in time."""
        for _ in range(LOOKS):
            if seen := look():
                return seen
            self.meanwhile()
        raise TourStopped(f"Waited for {what}, in vain. Does the worker run?")


def quorum(stage: Stage) -> list[Sight]:
    [asked] = stage.asked(stage.start(situations.WRONG_KETTLES))
    stage.approve(asked, "marco")
    return [
        Sight("dana", _page(asked), "Marco has approved, and one more of the desk is needed: approve, and it runs."),
        Sight("nora", _page(asked), "Or let Nora approve: of those who lead the desk one is enough."),
    ]


def escalation(stage: Stage) -> list[Sight]:
    [asked] = stage.asked(stage.start(situations.UNANSWERED_TICKET))
    return [
        Sight("dana", _page(asked), "Decide nothing. After 30 s the target is missed, and the desk is reminded."),
        Sight("nora", _page(asked), "Not hers at first. After 60 s the request is in her inbox too: approve it."),
        Sight(
            "ada",
            f"{_run_page(asked.run_id)}?view=events",
            "The record has approval.breached, reminded and escalated, each once.",
        ),
    ]


def grant(stage: Stage) -> list[Sight]:
    dana = stage.people["dana"]
    for earlier in Grant.objects.filter(made_by=dana, reason=GRANT_WHY, revoked_at=None):
        actions.revoke_grant(earlier.pk, "The tour is played anew", dana)
    [asked] = stage.asked(stage.start(situations.CREDIT_TO_GRANT))
    new = actions.NewGrant(
        rules={"customer_id": "is", "amount": "at_most", "reason": "any"},
        most={"amount": str(situations.GRANTED_AT_MOST)},
        sums={"amount": "60"},
        days="7",
        max_hits="5",
        reason=GRANT_WHY,
    )
    made = actions.make_grant(asked.pk, new, dana)
    stage.approve(asked, "dana")
    small = stage.ended(stage.start(situations.CREDIT_SMALL))
    [large] = stage.asked(stage.start(situations.CREDIT_LARGE))
    return [
        Sight(
            "ada", _call_page(_credit_of(small)), "$12.00 were given and nobody was asked: the call names the grant."
        ),
        Sight("dana", _page(large), "$35.00 are more than the grant allows, so people are asked: decide it."),
        Sight("dana", reverse("grant", args=[made.pk]), "What is used of it. Revoke it, and small ones ask again."),
    ]


def batch(stage: Stage) -> list[Sight]:
    asked = stage.asked(stage.start(situations.LATE_PARCELS))
    picked = "&".join(f"pick={one.pk}" for one in asked)
    return [
        Sight("dana", f"{reverse('batch')}?{picked}", "Three like credits in one table: approve them together."),
        Sight("ada", _run_page(asked[0].run_id), "Each is a decision of its own, and ran by itself."),
    ]


def plan(stage: Stage) -> list[Sight]:
    run = stage.start(situations.PLANNED_CREDITS)
    [whole] = stage.asked(run)
    stage.approve(whole, "dana")
    [other] = stage.asked(run)
    return [
        Sight(
            "dana", _page(whole), "One plan of three credits, approved: two are made. End what is left, if you like."
        ),
        Sight("ada", _run_page(run.pk), "The two calls name the plan; the third is $18.00 and not $8.00, so it waits."),
        Sight("dana", _page(other), "What was not planned is asked about like any other call: decide it."),
    ]


def stale_world(stage: Stage) -> list[Sight]:
    [asked] = stage.asked(stage.start(situations.MOVED_OFFICE))
    stage.approve(asked, "marco")
    # While the decision can still be undone, Priya changes the address herself.
    now = Order.objects.get(pk="58244").delivery_address
    shop.change_address("58244", next(office for office in OFFICES if office != now))
    [again] = stage.wait_for("the request to come back", lambda: _after(asked))
    return [
        Sight("dana", _page(again), "Marco's yes did not run: the address changed meanwhile. Decide on the new state."),
        Sight("ada", _page(asked), "The first request, set aside, with Marco's decision on it."),
    ]


def outside_account(stage: Stage) -> list[Sight]:
    [asked] = stage.asked(stage.start(PLANTED_ACCOUNT))
    return [
        Sight(
            "dana", _page(asked), "An account number and an address from a ticket, marked; the risk is high: reject."
        ),
    ]


def ask(stage: Stage) -> list[Sight]:
    [asked] = stage.asked(stage.start(situations.CHANGED_MIND))
    actions.ask_agent(asked.pk, "Is shipping part of what we refund here?", stage.people["dana"])
    [again] = stage.wait_for("the agent to propose it anew", lambda: _after(asked))
    return [
        Sight(
            "dana", _page(again), "The agent answered and proposes $72.00 for $80.00; the difference is shown: approve."
        ),
        Sight("ada", _page(asked), "The first proposal, which nobody can approve any more."),
    ]


def undo(stage: Stage) -> list[Sight]:
    run = stage.start(situations.CREDIT_TO_UNDO)
    [asked] = stage.asked(run)
    stage.approve(asked, "marco")
    stage.ended(run)
    given = _credit_of(run)
    back = actions.undo_call(
        given.pk, "The filters were on time after all: the carrier's date was wrong.", stage.people["dana"]
    )
    [way_back] = stage.asked(back)
    return [
        Sight("ada", _call_page(given), "The credit was given; the call says where it is asked to be undone."),
        Sight("nora", _page(way_back), "Cancelling it is a request of its own, which Dana, who asked, cannot approve."),
    ]


def totals(stage: Stage) -> list[Sight]:
    first = stage.start(situations.GOODWILL_FIRST)
    [asked] = stage.asked(first)
    stage.approve(asked, "nora")
    stage.ended(first)
    [again] = stage.asked(stage.start(situations.GOODWILL_AGAIN))
    return [
        Sight("dana", reverse("inbox"), "With what Jon had today it is over $50.00: it is not among Dana's requests."),
        Sight("nora", _page(again), "Nora leads the desk: the rule with the total is named, and she can approve."),
    ]


@dataclass(frozen=True)
class Part:
    """One part of governance, and how it is played."""

    name: str
    about: str
    play: Callable[[Stage], list[Sight]]


PARTS = (
    Part("quorum", "two of one group or one of another", quorum),
    Part("escalation", "nobody decides: a target, a reminder, a second group", escalation),
    Part("grant", "calls like this are allowed for a while, larger ones ask", grant),
    Part("batch", "three like requests decided together", batch),
    Part("plan", "three calls approved as one plan, and one that is not in it", plan),
    Part("stale-world", "the shop changes between approval and act: asked again", stale_world),
    Part("outside-account", "an account number that a ticket planted", outside_account),
    Part("ask", "a question, and another proposal for an answer", ask),
    Part("undo", "what was done is taken back by a request of its own", undo),
    Part("totals", "what a customer has had today is counted", totals),
)


def _after(approval: Approval) -> list[Approval]:
    """The request that stands in the place of one, once there is one."""
    return list(Approval.objects.filter(supersedes=approval, state=Approval.State.PENDING))


def _credit_of(run: Run) -> ToolExecution:
    """The call of a run that gave a credit."""
    return ToolExecution.objects.select_related("step").get(run=run, name="issue_store_credit")


def _page(approval: Approval) -> str:
    return reverse("approval", args=[approval.pk])


def _run_page(run_id: uuid.UUID) -> str:
    return reverse("run", args=[run_id])


def _call_page(execution: ToolExecution) -> str:
    return f"{_run_page(execution.run_id)}?step={execution.step.number}&call={execution.index}"
