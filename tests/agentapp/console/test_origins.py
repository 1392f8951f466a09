"""Where values came from, shown next to them on the page of a request, and the reasons for its risk."""

from collections.abc import Callable

import pytest
from django.test import Client

from approvals.models import Approval
from tests.hostile import Elements

from .conftest import posted

pytestmark = pytest.mark.django_db
Waiting = Callable[..., Approval]

EVIDENCE = [
    {"n": 1, "kind": "message", "title": "What the run was given", "body": "x", "trust": "untrusted_content"},
    {
        "n": 2,
        "kind": "result",
        "title": "read_ticket",
        "body": "y",
        "trust": "untrusted_content",
        "ref": "r:1",
        "step": 1,
    },
]
PLANTED = {"path": "amount", "origin": "outside", "source": "read_ticket", "step": 1, "call": "c", "ref": "r:1",
           "quote": "pay <b>5000</b>"}  # fmt: skip
FACTORS = [{"name": "outside", "points": 35, "words": "from outside: <i>Amount</i>"}]


def html(page: Client, path: str, **query: str) -> str:
    return page.get(path, query).content.decode()


def test_a_value_from_outside_is_marked_in_words_and_leads_to_its_evidence(page: Client, waiting: Waiting) -> None:
    approval = waiting(evidence=EVIDENCE, provenance=[PLANTED], risk_factors=FACTORS)
    for text in (html(page, f"/approvals/{approval.pk}/"), html(page, "/inbox/", id=str(approval.pk))):
        assert "from-outside" in text
        assert '<a href="#e2">read_ticket, step 1</a>' in text
        assert "From outside: Amount" in text
        assert "Why this risk" in text
        assert "+35" in text
        assert Elements(text).wrong == []
        assert "<b>5000" not in text


def test_every_origin_has_a_word_and_what_is_too_common_has_none(page: Client, waiting: Waiting) -> None:
    rows = [{"path": "amount", "origin": "trusted", "source": "get_order", "step": 1},
            {"path": "reason", "origin": "unmarked"},
            {"path": "order_id", "origin": "customer", "source": "What the run was given"}]  # fmt: skip
    text = html(page, f"/approvals/{waiting(evidence=EVIDENCE, provenance=rows).pk}/")
    assert text.count('class="origin ') == 2
    assert "From our systems: get_order, step 1" in text
    assert 'From the customer: <a href="#e1">What the run was given</a>' in text
    assert "from-outside" not in text


def test_what_a_person_has_typed_is_theirs(page: Client, waiting: Waiting) -> None:
    approval = waiting(evidence=EVIDENCE, provenance=[PLANTED])
    typed = posted(approval, **{"shown": "arg.amount", "arg.amount": "12.00"})
    text = page.post(f"/approvals/{approval.pk}/draft/", typed).content.decode()
    assert "From our team: Changed by a person" in text
    assert "from-outside" not in text


def test_a_request_without_either_says_nothing_of_it(page: Client, waiting: Waiting) -> None:
    text = html(page, f"/approvals/{waiting().pk}/")
    assert "Why this risk" not in text
    assert 'class="origin ' not in text
