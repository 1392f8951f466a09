"""Who may decide, tested wherever somebody can: a person concerned never does, whatever their rights."""

import json
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone

from agentapp import auth
from approvals import delegations, standing
from approvals.delegations import Scope
from approvals.models import Approval, Decision
from tests.conftest import make_user

from .conftest import make_waiting, posted

pytestmark = pytest.mark.django_db

# Requests that can be decided anywhere: low risk, and they can be undone.
SMALL = {"risk": "low", "effect_class": "reversible", "hold_seconds": 0}


def lend(lender: User, deputy: User, *groups: Group) -> None:
    now = timezone.now()
    scope = Scope([group.pk for group in groups])
    lent = delegations.begin(lender, deputy, now - timedelta(minutes=1), now + timedelta(days=1), scope)
    assert isinstance(lent, delegations.Delegation), lent


# --- Who: each makes a request, and says who tries to decide about it and whether they may ------------------------


def plain_decider(sam: User, dana: User) -> tuple[Approval, User, bool]:
    return make_waiting(sam, **SMALL), dana, True


def deputy(sam: User, dana: User) -> tuple[Approval, User, bool]:
    finance = Group.objects.create(name="finance")
    lend(make_user("Bea", "approver", "finance"), dana, finance)
    return make_waiting(sam, **SMALL, groups=(finance.pk,)), dana, True


def starter(sam: User, dana: User) -> tuple[Approval, User, bool]:
    return make_waiting(dana, **SMALL), dana, False


def superuser_who_started(sam: User, dana: User) -> tuple[Approval, User, bool]:
    User.objects.filter(pk=dana.pk).update(is_superuser=True, is_staff=True)
    return make_waiting(dana, **SMALL), dana, False


def service_account(sam: User, dana: User) -> tuple[Approval, User, bool]:
    """A program's account: its token started the run, and it has the right to decide."""
    robot = make_user("Robot", "operator", "approver")
    return make_waiting(robot, **SMALL), robot, False


def taker_over(sam: User, dana: User) -> tuple[Approval, User, bool]:
    return make_waiting(sam, **SMALL, excluded=(dana.pk,)), dana, False


def last_editor_at_high_risk(sam: User, dana: User) -> tuple[Approval, User, bool]:
    return make_waiting(sam, **SMALL | {"risk": "high", "editor_id": dana.pk}), dana, False


def deputy_of_the_starter(sam: User, dana: User) -> tuple[Approval, User, bool]:
    finance = Group.objects.create(name="finance")
    bea = make_user("Bea", "approver", "finance")
    lend(bea, dana, finance)
    return make_waiting(bea, **SMALL, groups=(finance.pk,)), dana, False


def deputy_who_started(sam: User, dana: User) -> tuple[Approval, User, bool]:
    finance = Group.objects.create(name="finance")
    lend(make_user("Bea", "approver", "finance"), dana, finance)
    return make_waiting(dana, **SMALL, groups=(finance.pk,)), dana, False


def stranger_to_the_group(sam: User, dana: User) -> tuple[Approval, User, bool]:
    return make_waiting(sam, **SMALL, groups=(Group.objects.create(name="finance").pk,)), dana, False


def superuser_outside_the_group(sam: User, dana: User) -> tuple[Approval, User, bool]:
    User.objects.filter(pk=dana.pk).update(is_superuser=True, is_staff=True)
    return make_waiting(sam, **SMALL, groups=(Group.objects.create(name="finance").pk,)), dana, False


WHO = [
    plain_decider, deputy, starter, superuser_who_started, service_account, taker_over, last_editor_at_high_risk,
    deputy_of_the_starter, deputy_who_started, stranger_to_the_group, superuser_outside_the_group,
]  # fmt: skip


# --- Where: each tries to approve there --------------------------------------------------------------------------


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def by_page(approval: Approval, user: User, **more: Any) -> None:
    signed_in(user).post(f"/approvals/{approval.pk}/decide/", posted(approval, **more))


def by_inbox(approval: Approval, user: User) -> None:
    by_page(approval, user, next="inbox")


def by_focus(approval: Approval, user: User) -> None:
    by_page(approval, user, next="focus")


def by_conversation(approval: Approval, user: User) -> None:
    by_page(approval, user, next="chat")


def by_batch(approval: Approval, user: User) -> None:
    digest = approval.final_digest or approval.action_digest
    item = f"{approval.pk}:{approval.version}:{digest}:{uuid.uuid4()}"
    signed_in(user).post("/inbox/batch/", {"item": [item], "type": "approve"})


def by_token(approval: Approval, user: User, *scopes: str) -> int:
    _, secret = auth.issue_token(user, "test", list(scopes or ["approvals:decide"]), actor="system")
    return by_api(Client(), approval, Authorization=f"Bearer {secret}")


def by_api(client: Client, approval: Approval, **headers: str) -> int:
    digest = approval.final_digest or approval.action_digest
    body = {"decision_id": str(uuid.uuid4()), "type": "approve", "version": approval.version, "action_digest": digest}
    path = f"/api/v1/approvals/{approval.pk}/decisions"
    return client.post(path, json.dumps(body), "application/json", headers=headers).status_code


WHERE: list[Callable[[Approval, User], object]] = [by_page, by_inbox, by_focus, by_conversation, by_batch, by_token]


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("who", WHO)
def test_only_those_it_does_not_concern_decide(sam: User, dana: User, who: Any, where: Any) -> None:
    approval, user, may = who(sam, dana)
    where(approval, User.objects.get(pk=user.pk))
    # High-risk requests cannot be batched; the test is about who, and these people may not decide either way.
    assert Decision.objects.filter(approval=approval).count() == int(may)
    approval.refresh_from_db()
    assert approval.state == ("approved" if may else "pending")


@pytest.mark.parametrize("who", WHO)
def test_no_surface_offers_it_to_those_it_concerns(sam: User, dana: User, who: Any) -> None:
    approval, user, may = who(sam, dana)
    client = signed_in(user)
    shown = {
        "page": client.get(f"/approvals/{approval.pk}/").content.decode(),
        "preview": client.get(f"/inbox/peek/{approval.pk}/").content.decode(),
        "conversation": client.get(f"/runs/{approval.run_id}/chat/").content.decode(),
    }
    for name, html in shown.items():
        assert ('value="approve"' in html) == may, name
    if who is last_editor_at_high_risk:
        # They may still reject it, and read why they cannot approve.
        why = "You changed these arguments, so somebody else must approve them."
        assert all(why in html for html in shown.values())
        assert all("do=reject" in html for html in shown.values())
        return
    batch = client.get("/inbox/batch/", {"pick": str(approval.pk)})
    assert (batch.status_code == 200) == may
    served = client.post("/inbox/focus/begin/")["Location"]
    assert (str(approval.pk) in served) == may
    _, secret = auth.issue_token(user, "test", ["approvals:read"], actor="system")
    read = client.get(f"/api/v1/approvals/{approval.pk}", headers={"Authorization": f"Bearer {secret}"})
    assert (read.status_code == 200 and read.json()["you_may_decide"]) == may
    assert (standing.may_decide(User.objects.get(pk=user.pk), approval) is None) == may


def test_a_session_is_no_token(sam: User, dana: User) -> None:
    approval = make_waiting(sam, **SMALL)
    assert by_api(signed_in(dana), approval) == 401
    assert not Decision.objects.exists()


def test_a_token_that_starts_runs_decides_nothing(sam: User, dana: User) -> None:
    """By its scopes, whoever owns it; and by its owner, whatever its scopes."""
    approval = make_waiting(sam, **SMALL)
    for scope in sorted(auth.STARTS_RUNS):
        assert by_token(approval, dana, scope) == 403
        with pytest.raises(auth.TokenRefused):
            auth.issue_token(dana, "both", [scope, "approvals:decide"], actor="system")
    own = make_waiting(dana, **SMALL)
    assert by_token(own, dana, "approvals:decide") == 403
    assert not Decision.objects.exists()


def test_the_admin_decides_nothing(sam: User, dana: User) -> None:
    User.objects.filter(pk=dana.pk).update(is_superuser=True, is_staff=True)
    approval = make_waiting(sam, **SMALL)
    client = signed_in(dana)
    for path, form in (
        ("/admin/approvals/approval/", {"action": "approve", "_selected_action": str(approval.pk)}),
        (f"/admin/approvals/approval/{approval.pk}/change/", {"state": "approved"}),
        ("/admin/approvals/decision/add/", {"approval": str(approval.pk), "type": "approve"}),
    ):
        assert client.post(path, form).status_code == 403, path
    approval.refresh_from_db()
    assert (approval.state, Decision.objects.count()) == ("pending", 0)
