"""Three people, two calls and every transition in any order, against a model of a few lines."""

from datetime import timedelta

import pytest
from django.db import transaction
from django.utils import timezone
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from agentapp.roles import ensure_roles
from approvals import decisions, ledger
from approvals.decisions import Taken
from approvals.models import Approval, Question
from tests.conftest import make_user
from tests.rows import a_decision, a_request, decide, read, undo, within_transaction

PAST = timedelta(minutes=1)
PAUSE = timedelta(minutes=10)
DECIDED = {"approved", "rejected", "responded"}
AMOUNTS = [240, 200, 1]

people = st.sampled_from(["dana", "marco", "dana", "marco", "sam"])


class Model:
    """What one request should be: its state, the amount that would run, and each person's decision."""

    def __init__(self, needed: int, risk: str) -> None:
        self.needed, self.risk = needed, risk
        self.state, self.amount, self.due, self.old, self.settled = "pending", 240, False, False, False
        self.standing: dict[str, tuple[str, int]] = {}  # who → (decision, amount)
        self.asked, self.stopped = False, False  # a question is open; the clock has stopped for one
        self.uses = 0

    def approvers(self) -> set[str]:
        kinds = ("approve",) if self.risk == "high" else ("approve", "edit")
        return {who for who, (kind, amount) in self.standing.items() if kind in kinds and amount == self.amount}

    def decide(self, who: str, kind: str, amount: int) -> bool:
        if who == "sam" or self.state != "pending" or self.old or who in self.standing:
            return False
        if kind == "edit" and amount == self.amount:
            kind = "approve"
        if kind == "edit":
            self.standing.clear()
            self.amount = amount
        self.standing[who] = (kind, self.amount)
        if kind in ("reject", "respond"):
            self.state = "rejected" if kind == "reject" else "responded"
        elif len(self.approvers()) >= self.needed:
            self.state = "approved"
        return True

    def undo(self, who: str) -> bool:
        if who not in self.standing or self.settled or self.state not in {"pending", *DECIDED}:
            return False
        kind, _ = self.standing.pop(who)
        if kind == "edit":
            self.standing.clear()
            self.amount = 240
        self.state, self.due = "pending", False
        return True


class Deciding(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.story = transaction.atomic()
        self.story.__enter__()

    def teardown(self) -> None:
        transaction.set_rollback(True)
        self.story.__exit__(None, None, None)

    @initialize()
    def meet(self):
        ensure_roles()
        self.users = {name: make_user(name.title(), "approver") for name in ("dana", "marco", "sam")}
        self.ask(1, "medium")

    # A request that has ended is followed by another, to get long stories.
    @precondition(lambda self: self.model.state not in ("pending", *DECIDED))
    @rule(needed=st.integers(1, 2), risk=st.sampled_from(["medium", "high"]))
    def ask_anew(self, needed, risk):
        self.ask(needed, risk)

    def ask(self, needed: int, risk: str) -> None:
        self.model, self.sent = Model(needed, risk), []
        # Sam may decide, but started the run.
        starter = self.users["sam"].pk
        self.approval = a_request(approvals_needed=needed, risk=risk, hold_seconds=30, starter_id=starter)

    @rule(
        who=people,
        kind=st.sampled_from(["approve", "approve", "edit", "edit", "reject", "respond"]),
        amount=st.sampled_from(AMOUNTS),
    )
    def decide(self, who, kind, amount):
        changes = {"arguments": {"order": "1001", "amount": amount}} if kind == "edit" else {}
        incoming = a_decision(read(self.approval), self.users[who], kind, **changes)
        taken = isinstance(decide(self.approval, incoming), Taken)
        assert taken == self.model.decide(who, kind, amount)
        if taken:
            self.sent.append(incoming)

    @rule(who=people)
    def ask_something(self, who):
        may = who != "sam" and self.model.state == "pending" and not self.model.old and not self.model.asked
        before = read(self.approval).expires_at
        asked = within_transaction(decisions.ask, self.approval.pk, self.users[who], "Why?", PAUSE)
        assert isinstance(asked, Question) == may
        if may:
            moved = read(self.approval).expires_at - before
            assert moved == (timedelta() if self.model.stopped else PAUSE)
            self.model.asked = self.model.stopped = True

    @rule(how=st.sampled_from(["answer", "go on"]))
    def answer_it(self, how):
        question = Question.objects.filter(approval=self.approval, closed_at=None).first()
        assert (question is not None) == self.model.asked
        if question is None:
            return
        before = read(self.approval)
        if how == "answer":
            assert within_transaction(decisions.answer, question.pk, "Because.")
        else:
            assert within_transaction(decisions.go_on, question.pk, "It took too long.")
        assert not within_transaction(decisions.go_on, question.pk, "It took too long.")
        after = read(self.approval)
        assert timedelta() <= before.expires_at - after.expires_at <= PAUSE
        assert (after.version, after.action_digest) == (before.version, before.action_digest)
        self.model.asked = False

    @rule(who=people, off=st.sampled_from(["version", "digest"]))
    def decide_about_what_is_no_longer_so(self, who, off):
        wrong = {"version": read(self.approval).version + 1} if off == "version" else {"action_digest": "0" * 64}
        incoming = a_decision(read(self.approval), self.users[who], "approve", **wrong)
        assert not isinstance(decide(self.approval, incoming), Taken)

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def send_again(self, data):
        before = read(self.approval).version
        answer = decide(self.approval, data.draw(st.sampled_from(self.sent)))
        assert isinstance(answer, Taken)
        assert answer.repeated
        assert read(self.approval).version == before

    @rule(who=people)
    def undo(self, who):
        assert isinstance(undo(self.approval, self.users[who]), Approval) == self.model.undo(who)

    @rule()
    def let_the_hold_pass(self):
        decided = Approval.objects.filter(pk=self.approval.pk, runs_at__isnull=False)
        self.model.due = bool(decided.update(runs_at=timezone.now() - PAST))

    def let_everything_grow_old(self):
        self.let_the_hold_pass()
        past = timezone.now() - PAST
        Approval.objects.filter(pk=self.approval.pk).update(expires_at=past)
        Approval.objects.filter(pk=self.approval.pk, use_by__isnull=False).update(use_by=past)
        self.model.old = True

    @rule()
    def expire(self):
        overdue = self.model.state in ("pending", "approved") and self.model.old
        assert within_transaction(decisions.expire, self.approval.pk) == overdue
        if overdue:
            self.model.state = "expired"

    @rule()
    def consume(self):
        may = self.model.state == "approved" and self.model.due and not self.model.old
        assert within_transaction(decisions.consume, read(self.approval)) == may
        if may:
            self.model.state, self.model.settled = "used", True
            self.model.uses += 1

    @rule()
    def settle(self):
        told = self.model.state == "expired" or (self.model.state in ("rejected", "responded") and self.model.due)
        told = told and not self.model.settled
        assert within_transaction(decisions.settle, read(self.approval)) == told
        self.model.settled |= told

    @rule(how=st.sampled_from(["withdraw", "supersede", "grow old", "nothing", "nothing", "nothing"]))
    def end(self, how):
        if how == "grow old":
            self.let_everything_grow_old()
            self.expire()
        elif how == "withdraw":
            open_ = self.model.state in {"pending", *DECIDED} and not self.model.settled
            assert within_transaction(decisions.withdraw, self.approval.run_id, "The run has ended.") == int(open_)
            self.model.state = "withdrawn" if open_ else self.model.state
        elif how == "supersede":
            open_ = self.model.state in {"pending", *DECIDED} and not self.model.settled
            assert within_transaction(decisions.supersede, read(self.approval), "It has changed.") == open_
            self.model.state = "superseded" if open_ else self.model.state

    @invariant()
    def the_row_is_what_the_model_says(self):
        approval = read(self.approval)
        self.model.asked &= self.model.state == "pending"
        assert approval.state == ("asked" if self.model.asked else self.model.state)
        assert Question.objects.filter(approval=approval, closed_at=None).exists() == self.model.asked
        text = approval.final_arguments_text or approval.arguments_text
        assert f'"amount":{self.model.amount},' in text
        standing = {d.user.username: d.type for d in approval.decisions.filter(undone_at=None)}
        assert standing == {who: kind for who, (kind, _) in self.model.standing.items()}

    @invariant()
    def it_is_used_once_at_most_and_never_without_people_who_approved_exactly_that(self):
        uses = [event for event in self._events() if event.type == "approval.used"]
        assert len(uses) == self.model.uses <= 1
        for use in uses:
            approving = read(self.approval).decisions.filter(
                undone_at=None, type__in=["approve", "edit"], action_digest=use.data["action_digest"]
            )
            assert approving.count() >= self.model.needed
            assert not approving.filter(user=self.users["sam"]).exists()
            if self.model.risk == "high":
                assert approving.filter(type="approve").count() >= self.model.needed

    @invariant()
    def at_most_one_decision_ends_it(self):
        ending = 0
        for event in self._events():
            if event.type in ("approval.approved", "approval.rejected", "approval.responded"):
                ending += 1
            elif event.type == "approval.undone":
                ending = 0
            assert ending <= 1

    @invariant()
    def the_ledger_holds(self):
        held, broken = ledger.verify(ledger.run_chain(self.approval.run_id))
        assert broken is None
        assert held == len(self._events())

    def _events(self):
        return list(ledger.Event.objects.filter(run_id=self.approval.run_id).order_by("seq"))


@pytest.mark.django_db
def test_decisions_in_any_order_do_what_a_small_model_says():
    run_state_machine_as_test(Deciding, settings=settings(max_examples=30, stateful_step_count=35, deadline=None))
