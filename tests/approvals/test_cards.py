"""A card and its row: what people were shown can be read back in full, from one list of its parts."""

from dataclasses import MISSING, fields, replace
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.utils import timezone

from approvals import cards, decisions, ledger
from approvals.cards import Card
from approvals.escalation import Step
from approvals.models import Approval, ApprovalKind, Risk
from tests.rows import a_card, a_request, read

pytestmark = pytest.mark.django_db


def full(user: User, group: Group) -> Card:
    """A card that says something in every field."""
    told: dict[str, Any] = {
        "route": "refunds",
        "run_title": "Ticket 7",
        "button": "$240.00",
        "locked_fields": ["order"],
        "secret_fields": ["pin"],
        "evidence": [{"kind": "message", "title": "Given", "body": "Hello"}],
        "explanation": "It arrived broken.",
        "snapshot_text": '{"state":1}',
        "preview_text": '{"fee":2}',
        "difference": [{"name": "amount"}],
        "rule": "refunds",
        "condition": "args.amount > 100.0",
        "rule_values": ({"name": "args.amount", "value": 240},),
        "risk": Risk.HIGH,
        "risk_factors": [{"words": "Large"}],
        "provenance": [{"pointer": "/amount", "origin": "model"}],
        "terms": ([{"group": group.name, "count": 1}],),
        "about": {"customer": "ana"},
        "approvals_needed": 2,
        "starter_id": user.pk,
        "starter_excluded": False,
        "excluded": (user.pk,),
        "on_expiry": "stop",
        "groups": (group.pk,),
        "escalation": (Step(600, group.name, False),),
        "target_seconds": 900,
        "business_hours": True,
        "supersedes_id": a_request().pk,
        "editor_id": user.pk,
        "editor_lender_id": user.pk,
        "kind": ApprovalKind.PLAN,
        "second_look": {"words": "Looked at"},
        "assurance_needed": "passkey",
        "plan_text": '{"calls":[]}',
        "salt": "5a17",
        "pii_fields": ["name"],
        "rule_version": 3,
        "rule_digest": "d" * 64,
    }
    return a_card(**told)


def test_every_field_of_a_card_is_read_back_from_its_row(dana: User) -> None:
    group = Group.objects.get(name="approver")
    card = full(dana, group)
    # Mocked requests ask nobody and have a test of their own.
    for each in (each for each in fields(Card) if each.name != "mocked"):
        default = each.default_factory() if each.default_factory is not MISSING else each.default
        assert getattr(card, each.name) != default, f"{each.name} says nothing here, so its way was not looked at"
    with ledger.transaction():
        [made] = decisions.request([card], timezone.now())
    back = cards.card_of(read(made), card.groups)
    assert back == card
    assert cards.view_digest(back) == made.view_digest


def test_a_long_reason_is_cut_before_anybody_is_shown_it() -> None:
    made = a_request(reason="Because it is much. " * 30)
    assert len(made.reason) == 500
    assert made.view_digest == cards.view_digest(cards.card_of(made, ()))


def test_a_mocked_card_is_read_back_as_one_that_nobody_is_waited_for(dana: User) -> None:
    group = Group.objects.get(name="approver")
    with ledger.transaction():
        [made] = decisions.request([replace(full(dana, group), mocked=True, hold_seconds=5)], timezone.now())
    back = cards.card_of(read(made), (group.pk,))
    assert (back.mocked, back.hold_seconds, back.target_seconds, back.escalation) == (True, 0, None, ())
    assert (made.escalates_at, made.target_at) == (None, None)
    assert cards.view_digest(back) == made.view_digest


@pytest.mark.parametrize(("version", "is_anew"), [("1", True), ("2", False)])
def test_other_arguments_are_the_agents_unless_its_tool_has_changed(version: str, is_anew: bool) -> None:
    """A changed tool is asked about as it was proposed: what people had changed in it is gone, and nobody asked."""
    replaced = Approval(tool_version="1")
    differing = [{"of": "arguments", "name": "amount", "was": 4, "now": 5}]
    assert Approval(supersedes=replaced, tool_version=version, difference=differing).is_proposed_anew is is_anew
