"""Two people about one call: the second reads what the first one changed, and approves exactly that."""

import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from agentapp import actions, auth
from approvals.digest import canonical, parse
from approvals.models import Approval, Decision

from .conftest import REFUND, posted
from .test_decide import FORM

pytestmark = pytest.mark.django_db
Waiting = Callable[..., Approval]
CHEAPER = {**FORM, "arg.amount": "184.50"}


@pytest.fixture
def second(marco: User) -> Client:
    client = Client()
    client.force_login(marco)
    return client


def edited(page: Client, approval: Approval, **fields: Any) -> Approval:
    page.post(f"/approvals/{approval.pk}/decide/", posted(approval, **{**CHEAPER, **fields}))
    approval.refresh_from_db()
    return approval


def decide(client: Client, approval: Approval, **fields: Any) -> Any:
    return client.post(f"/approvals/{approval.pk}/decide/", posted(approval, **fields))


def html_of(client: Client, path: str) -> str:
    return client.get(path).content.decode()


@pytest.mark.parametrize("path", ["/approvals/{}/", "/inbox/peek/{}/"])
def test_the_second_reads_who_changed_what_and_what_they_approve(
    page: Client, second: Client, waiting: Waiting, path: str
) -> None:
    approval = edited(page, waiting(approvals_needed=2))
    html = html_of(second, path.format(approval.pk))
    assert "Dana Whitfield changed what the agent proposed." in html
    assert "Amount: <del>$214.50</del> → <b>$184.50</b>" in html
    assert "You approve the call as it was changed: $184.50." in html
    assert f'name="action_digest" value="{approval.final_digest}"' in html
    assert "Approve $184.50, edited as 2 of 2" in html


def test_the_difference_stands_line_by_line(page: Client, second: Client, waiting: Waiting) -> None:
    approval = edited(page, waiting(approvals_needed=2))
    html = html_of(second, f"/approvals/{approval.pk}/?view=diff")
    assert "214.5" in html
    assert '<div class="ln add" data-s="+"><span>' in html


def test_what_they_confirm_is_the_changed_call(page: Client, second: Client, waiting: Waiting) -> None:
    approval = edited(page, waiting(approvals_needed=2))
    assert decide(second, approval, **CHEAPER).status_code == 302
    approval.refresh_from_db()
    given = list(approval.decisions.filter(undone_at__isnull=True))
    assert [(one.type, one.action_digest) for one in given] == [
        ("edit", approval.final_digest),
        ("approve", approval.final_digest),
    ]
    assert (approval.state, parse(approval.final_arguments_text)) == ("approved", {**REFUND, "amount": 184.5})


def test_who_read_the_call_before_it_was_changed_is_shown_the_new_one(
    page: Client, second: Client, waiting: Waiting
) -> None:
    approval = waiting(approvals_needed=2)
    seen = posted(approval, **FORM)
    approval = edited(page, approval)
    response = second.post(f"/approvals/{approval.pk}/decide/", seen)
    assert response.status_code == 409
    html = response.content.decode()
    assert "Nothing was decided." in html
    assert "Amount: <del>$214.50</del> → <b>$184.50</b>" in html
    assert f'name="action_digest" value="{approval.final_digest}"' in html
    assert Decision.objects.count() == 1


def test_a_version_that_is_right_does_not_make_up_for_a_digest_that_is_not(
    page: Client, second: Client, waiting: Waiting
) -> None:
    approval = waiting(approvals_needed=2)
    digest = approval.action_digest
    approval = edited(page, approval)
    assert decide(second, approval, action_digest=digest).status_code == 409
    assert Decision.objects.count() == 1


def test_whoever_approved_before_it_was_changed_confirms_anew(page: Client, second: Client, waiting: Waiting) -> None:
    approval = waiting(approvals_needed=2)
    assert decide(second, approval, **FORM).status_code == 302
    approval.refresh_from_db()
    approval = edited(page, approval)
    assert approval.state == "pending"
    html = html_of(second, f"/approvals/{approval.pk}/")
    assert "Dana Whitfield changed what the agent proposed." in html
    assert "as 2 of 2" in html
    assert decide(second, approval, **CHEAPER).status_code == 302
    approval.refresh_from_db()
    assert approval.state == "approved"


def test_at_high_risk_the_one_who_changed_it_is_not_counted(page: Client, second: Client, waiting: Waiting) -> None:
    approval = edited(page, waiting(approvals_needed=2, risk="high"))
    html = html_of(second, f"/approvals/{approval.pk}/")
    assert "0 of 2 approved" in html
    assert "Approve $184.50, edited as 1 of 2" in html
    assert decide(second, approval, **CHEAPER).status_code == 302
    approval.refresh_from_db()
    assert approval.state == "pending"
    assert "1 of 2 approved" in html_of(page, f"/approvals/{approval.pk}/")


@pytest.mark.parametrize(
    ("risk", "needed", "place", "fine"),
    [
        ("medium", 1, "", "Runs in 60 s, undo until then"),
        ("medium", 2, " as 1 of 2", "Needs another person after you"),
        ("high", 1, "", "Needs another person"),
        ("high", 2, "", "Needs 2 others"),
    ],
)
def test_the_button_says_whom_a_change_needs_besides(
    page: Client, second: Client, waiting: Waiting, risk: str, needed: int, place: str, fine: str
) -> None:
    approval = waiting(approvals_needed=needed, risk=risk)
    if needed > 1:
        # They approved something other than what is changed now.
        assert decide(second, approval, **FORM).status_code == 302
        approval.refresh_from_db()
    html = page.post(f"/approvals/{approval.pk}/draft/", posted(approval, **{**FORM, **CHEAPER})).content.decode()
    assert f"Approve $184.50, edited{place}</span>" in html
    assert (f'data-arms="Confirm refund of $184.50{place}"' in html) == (risk == "high")
    assert f'<span class="fine">{fine}</span>' in html


NOBODY = "Nobody else may approve this. Unless somebody gets that right before time runs out, it does not run."


def test_whoever_changes_a_call_at_high_risk_reads_while_they_do_that_nobody_else_may_approve_it(
    page: Client, waiting: Waiting
) -> None:
    approval = waiting(risk="high")
    assert 'id="left"' not in html_of(page, f"/approvals/{approval.pk}/")
    typed = posted(approval, **{**FORM, **CHEAPER})
    html = page.post(f"/approvals/{approval.pk}/draft/", typed).content.decode()
    assert "You cannot approve your own changes.</strong> " + NOBODY in html
    first = page.post(f"/approvals/{approval.pk}/decide/", {**typed, "type": "approve"}).content.decode()
    assert NOBODY in first
    edited(page, approval, type="confirm")
    for path in (f"/approvals/{approval.pk}/", f"/inbox/peek/{approval.pk}/"):
        assert NOBODY in html_of(page, path)


def test_and_who_may_where_somebody_may(page: Client, second: Client, waiting: Waiting) -> None:
    approval = waiting(risk="high")
    typed = posted(approval, **{**FORM, **CHEAPER})
    html = page.post(f"/approvals/{approval.pk}/draft/", typed).content.decode()
    assert "Marco Reyes may approve this." in html
    approval = edited(page, approval, type="confirm")
    assert "Marco Reyes may approve this." in html_of(second, f"/approvals/{approval.pk}/")


def test_ones_own_change_on_top_is_told_apart(page: Client, second: Client, waiting: Waiting) -> None:
    approval = edited(page, waiting(approvals_needed=2))
    draft = posted(approval, **{**FORM, "arg.amount": "100.00"})
    html = second.post(f"/approvals/{approval.pk}/draft/", draft).content.decode()
    assert "Amount: <del>$214.50</del> → <b>$184.50</b>" in html
    assert "You approve the call as it was changed, with your own changes." in html


def test_secrets_stay_masked_in_what_was_changed(page: Client, second: Client, waiting: Waiting) -> None:
    approval = waiting(approvals_needed=2, secret_fields=["note"])
    approval = edited(page, approval)
    html = html_of(second, f"/approvals/{approval.pk}/")
    assert "changed what the agent proposed" in html
    assert "sorry about the kettle" not in html.split('id="edited"')[1].split("</div>")[0]


def test_a_request_that_replaces_an_edited_one_says_whose_arguments_they_are(
    second: Client, waiting: Waiting, dana: User
) -> None:
    approval = waiting(editor_id=dana.pk, risk="high")
    html = html_of(second, f"/approvals/{approval.pk}/")
    assert "Dana Whitfield made these arguments," in html
    assert "Somebody else approves them." in html


def test_the_api_shows_the_same_and_refuses_what_is_stale(page: Client, marco: User, waiting: Waiting) -> None:
    approval = waiting(approvals_needed=2)
    stale = approval.action_digest
    approval = edited(page, approval)
    _, secret = auth.issue_token(marco, "test", ["approvals:read", "approvals:decide"], actor="system")
    headers = {"Authorization": f"Bearer {secret}"}
    path = f"/api/v1/approvals/{approval.pk}"
    read = Client().get(path, headers=headers).json()
    assert (read["args"]["amount"], read["final_args"]["amount"]) == (214.5, 184.5)
    assert read["action_digest"] == approval.final_digest
    assert [(one["type"], one["user"]["username"]) for one in read["decisions"]] == [("edit", "dana")]

    def send(digest: str) -> Any:
        body = {"decision_id": str(uuid.uuid4()), "type": "approve", "version": read["version"]}
        content = json.dumps(body | {"action_digest": digest})
        return Client().post(f"{path}/decisions", content, "application/json", headers=headers)

    refused = send(stale)
    assert (refused.status_code, refused.json()["code"]) == (409, "action_changed")
    assert refused.json()["approval"]["action_digest"] == approval.final_digest
    assert send(approval.final_digest).json()["approval"]["state"] == "approved"


def test_a_secret_that_was_changed_is_named_and_not_shown(
    page: Client, second: Client, waiting: Waiting, dana: User
) -> None:
    approval = waiting(arguments={**REFUND, "note": "hush-one"}, secret_fields=["note"], approvals_needed=2)
    changed = canonical({**REFUND, "note": "hush-two"})
    new = actions.NewDecision(
        uuid.uuid4(), "edit", approval.version, approval.action_digest, arguments_text=changed, via="api"
    )
    actions.decide(approval.pk, new, dana)
    response = second.get(f"/approvals/{approval.pk}/")
    assert [(each.label, each.now) for each in response.context["edit"].changes] == [
        ("Message to customer", "another value")
    ]
    assert any("(changed)" in line.text for line in response.context["shown"].lines)
    assert "hush" not in response.content.decode()
