"""What a customer, a page or a model writes can neither act in the console nor look like part of it."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from agentapp import actions
from agentapp.models import Tool
from approvals import decisions, ledger
from approvals.models import Approval
from tests.conftest import Clerk, call, calls, says
from tests.hostile import HIDDEN, MESSAGES, SENTENCE, Elements

from .conftest import posted

pytestmark = pytest.mark.django_db
Waiting = Callable[..., Approval]


@pytest.fixture
def pieces(page: Client, waiting: Waiting, dana: User) -> Callable[[str], dict[str, str]]:
    """The page of a request with outside text wherever it can be, and all its fragments."""

    def render(text: str) -> dict[str, str]:
        Tool.objects.update(questions=[text])
        evidence = [{"n": 1, "kind": "result", "title": text, "body": text, "trust": "untrusted_content"}]
        approval = waiting(
            evidence=evidence, explanation=text, reason=text[:400], condition=text, run_title=text[:200],
            rule_values=({"name": text, "value": text},),
            arguments={"order_id": text, "amount": 1.0, "reason": "changed_mind", "note": text, text: text},
        )  # fmt: skip
        question = actions.ask_agent(approval.pk, text, dana)
        with ledger.transaction():
            decisions.answer(question.pk, text)
        base = f"/approvals/{approval.pk}/"
        draft = {"shown": "arg.note", "arg.note": text + "!"}
        found = {
            name: page.get(base + name).content.decode() for name in ("", "?view=json", "?do=ask", "side/", "evidence/")
        }
        found["draft"] = page.post(
            f"{base}draft/", posted(approval, **draft), headers={"HX-Request": "true"}
        ).content.decode()
        found["diff"] = page.post(f"{base}draft/", posted(approval, view="diff", **draft)).content.decode()
        found["refused"] = page.post(f"{base}decide/", posted(approval, type="reject", message="")).content.decode()
        found["inbox"] = page.get("/inbox/", {"id": str(approval.pk)}).content.decode()
        return found

    return render


@pytest.mark.parametrize("text", MESSAGES.values(), ids=MESSAGES)
def test_outside_text_is_no_markup_and_hides_nothing(pieces: Callable[[str], dict[str, str]], text: str) -> None:
    for name, html in pieces(text).items():
        found = Elements(html)
        assert found.wrong == [], name
        assert not set(HIDDEN) & set(found.said), name


def test_what_imitates_the_console_is_marked_as_outside(pieces: Callable[[str], dict[str, str]]) -> None:
    html = pieces(SENTENCE)["evidence/"]
    assert f'<div class="ev-body pre untrusted">{SENTENCE}</div>' in html
    assert "From outside" in html
    headline = re.search(r'<p class="plain">(.*?)</p>', pieces(SENTENCE)[""], re.DOTALL)
    assert headline is not None
    assert "Approved by Dana" not in headline[1].replace(f"<b>{SENTENCE}</b>", "")


def test_a_megabyte_from_outside_makes_no_large_page(clerk: Clerk, dana: User, settings: Any) -> None:
    run = clerk.run(
        calls(call("f", "flood", characters=1_000_000)),
        calls(call("p", "pay", account="ana", amount=5), text="x" * 1_000_000),
        says("done"),
    )
    [approval] = clerk.open(run)
    client = Client()
    client.force_login(dana)
    places = [f"/approvals/{approval.pk}/{name}" for name in ("", "evidence/")]
    places += [f"/runs/{run.pk}/{name}" for name in ("", "chat/", "?view=conversation", "?step=2", "?step=2&call=0")]
    for place in places:
        response = client.get(place)
        assert response.status_code == 200
        assert len(response.content) < 100_000, place


def test_a_text_that_is_cut_says_how_much_there_is(clerk: Clerk, sam: User) -> None:
    run = clerk.run(says("<b>" + "x" * 30_000))
    client = Client()
    client.force_login(sam)
    html = client.get(f"/runs/{run.pk}/chat/").content.decode()
    assert "&lt;b&gt;xxx" in html
    assert "The first 20,000 of 30,003 characters; the record has all of them." in html
