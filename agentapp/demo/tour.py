"""The tour: each part of governance happens in the open shop, up to the act that is left to the viewer.

What the other people do — asking, approving first, changing things in the shop — is done here in their names, with the
same actions that pages and programs use. The running worker drives the agent's part, wherever it is.
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
    """Something expected did not happen. The message says what was waited for and what was seen."""


@dataclass(frozen=True)
class Sight:
    """Who opens which page, and what they do and see there."""

    who: str
    path: str
    then: str


@dataclass(frozen=True)
class Stage:
    """Where a part is played. `meanwhile` lets the worker work between two looks at the rows."""

    people: dict[str, User]
    meanwhile: Callable[[], None]

    def start(self, scenario: Scenario) -> Run:
        """Start a scenario as Sam, in a conversation of its own, so that it does not wait for an earlier one."""
        key = f"{scenario.conversation}-{uuid.uuid4().hex[:6]}" if scenario.conversation else ""
        return opening.start(replace(scenario, conversation=key), self.people["sam"])

    def asked(self, run: Run) -> list[Approval]:
        """What a run asks people about, once it waits for them."""

        def look() -> list[Approval]:
            run.refresh_from_db()
            if run.is_final:
                raise TourStopped(f"{run.reference} {run.state} before anybody was asked.")
            waits = run.state == Run.State.WAITING and run.waiting_for == "approval"
            found = Approval.objects.filter(run_id=run.pk, state=Approval.State.PENDING).order_by("created_at", "pk")
            return list(found) if waits else []

        return self.wait_for(f"{run.reference} to ask", look)

    def ended(self, run: Run) -> Run:
        """A run that has done what it was meant to do."""

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
        """The first truthy value of `look`. Raises TourStopped if there is none in time."""
        for _ in range(LOOKS):
            if seen := look():
                return seen
            self.meanwhile()
        raise TourStopped(f"Waited in vain for {what}. Is the worker running?")


def quorum(stage: Stage) -> list[Sight]:
    [asked] = stage.asked(stage.start(situations.WRONG_KETTLES))
    stage.approve(asked, "marco")
    return [
        Sight("dana", _page(asked), "Marco has approved, and one more from the desk is needed: approve, and it runs."),
        Sight("nora", _page(asked), "Or let Nora approve: one of those who lead the desk is enough."),
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
        actions.revoke_grant(earlier.pk, "The tour is played again", dana)
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
        Sight("ada", _call_page(_credit_of(small)), "$12.00 was given and nobody was asked: the call names the grant."),
        Sight("dana", _page(large), "$35.00 is more than the grant allows, so people are asked: decide it."),
        Sight("dana", reverse("grant", args=[made.pk]), "How much of it is used. Revoke it, and small ones ask again."),
    ]


def batch(stage: Stage) -> list[Sight]:
    asked = stage.asked(stage.start(situations.LATE_PARCELS))
    picked = "&".join(f"pick={one.pk}" for one in asked)
    return [
        Sight("dana", f"{reverse('batch')}?{picked}", "Three similar credits in one table: approve them together."),
        Sight("ada", _run_page(asked[0].run_id), "Each is a decision of its own and ran separately."),
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
        Sight("ada", _run_page(run.pk), "The two calls name the plan; the third is $18.00, not $8.00, so it waits."),
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
        Sight("dana", _page(again), "Marco's yes did not run, because the address changed. Decide on the new state."),
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
    [again] = stage.wait_for("the agent to propose it again", lambda: _after(asked))
    return [
        Sight("dana", _page(again), "The agent answered and proposes $72.00: see the difference, and approve."),
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
        Sight("ada", _call_page(given), "The credit was given; the call links to the request to undo it."),
        Sight("nora", _page(way_back), "Cancelling it is a request of its own, which Dana, who asked, cannot approve."),
    ]


def totals(stage: Stage) -> list[Sight]:
    first = stage.start(situations.GOODWILL_FIRST)
    [asked] = stage.asked(first)
    stage.approve(asked, "nora")
    stage.ended(first)
    [again] = stage.asked(stage.start(situations.GOODWILL_AGAIN))
    return [
        Sight(
            "dana", reverse("inbox"), "With Jon's others today it is over $50.00, so Dana does not have this request."
        ),
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
    Part("batch", "three similar requests decided together", batch),
    Part("plan", "three calls approved as one plan, and one that is not in it", plan),
    Part("stale-world", "the shop changes between approval and act: asked again", stale_world),
    Part("outside-account", "an account number that a ticket planted", outside_account),
    Part("ask", "a question, answered with another proposal", ask),
    Part("undo", "what was done is taken back with a separate request", undo),
    Part("totals", "what a customer has already had today counts", totals),
)


def _after(approval: Approval) -> list[Approval]:
    """The request that replaces this one, once there is one."""
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
