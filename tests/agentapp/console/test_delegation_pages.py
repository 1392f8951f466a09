"""The right to decide, delegated: the settings where people do it, and the pages that show it."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone

from agentapp.console.settings import delegation as page_of_settings
from approvals import delegations, ledger
from approvals.delegations import Scope
from approvals.models import Delegation, Event
from tests.conftest import make_user

from .conftest import make_tool, make_waiting, posted

pytestmark = pytest.mark.django_db


@pytest.fixture
def finance(roles: Any) -> Group:
    return Group.objects.create(name="finance")


@pytest.fixture
def bea(finance: Group) -> User:
    return make_user("Bea Lender", "approver", "finance")


def local(**ahead: int) -> str:
    return timezone.localtime(timezone.now() + timedelta(**ahead)).strftime("%Y-%m-%dT%H:%M")


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def lend(lender: User, deputy: User, *groups: Group, **scope: Any) -> Delegation:
    now = timezone.now()
    chosen = Scope([group.pk for group in groups], **scope)
    lent = delegations.begin(lender, deputy, now - timedelta(minutes=1), now + timedelta(days=1), chosen)
    assert isinstance(lent, Delegation), lent
    return lent


URL = "/settings/delegation/"


def test_somebody_lends_their_right_and_takes_it_back(bea: User, dana: User, finance: Group) -> None:
    client = signed_in(bea)
    make_tool()
    form = {
        "deputy": dana.pk, "groups": [finance.pk], "until": local(days=3), "highest_risk": "medium",
        "tools": "refund_payment",
    }  # fmt: skip
    html = client.post(URL, form, follow=True).content.decode()
    assert "Saved " in html
    assert "What others may decide for you" in html
    assert "up to medium risk" in html
    lent = Delegation.objects.get()
    assert (lent.lender, lent.deputy, lent.tools, [g.name for g in lent.groups.all()]) == (
        bea, dana, ["refund_payment"], ["finance"],
    )  # fmt: skip
    theirs = signed_in(dana).get(URL).content.decode()
    assert "What you may decide for others" in theirs
    assert "For Bea Lender" in theirs
    assert "Taken back " in client.post(f"{URL}{lent.pk}/end/", follow=True).content.decode()
    assert "What you may decide" not in signed_in(dana).get(URL).content.decode()
    assert "It had already ended" in client.post(f"{URL}{lent.pk}/end/", follow=True).content.decode()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"deputy": ""}, "Say who decides for you."),
        ({"groups": []}, "Choose at least one of your groups."),
        ({"until": ""}, "Say until when."),
        ({"until": "2020-01-01T00:00"}, "That moment has passed."),
        ({"until": "far"}, "30 days at most"),
        ({"tools": "no_such_tool"}, "There is no tool named no_such_tool."),
        ({"highest_risk": "critical"}, ""),
    ],
)
def test_what_makes_no_sense_is_refused(
    bea: User, dana: User, finance: Group, wrong: dict[str, Any], words: str
) -> None:
    form = {"deputy": dana.pk, "groups": [finance.pk], "until": local(days=3), "highest_risk": "high"} | wrong
    if form["until"] == "far":
        form["until"] = local(days=31)
    response = signed_in(bea).post(URL, form)
    assert response.status_code == 422
    assert words in response.content.decode()
    assert not Delegation.objects.exists()


def test_a_group_of_somebody_else_is_not_offered(bea: User, dana: User) -> None:
    legal = Group.objects.create(name="legal")
    form = {"deputy": dana.pk, "groups": [legal.pk], "until": local(days=3), "highest_risk": "high"}
    assert signed_in(bea).post(URL, form).status_code == 422
    assert "legal" not in signed_in(bea).get(URL).content.decode()


def test_nobody_ends_what_others_have_lent(bea: User, dana: User, marco: User, finance: Group) -> None:
    lent = lend(bea, dana, finance)
    for user in (dana, marco):
        signed_in(user).post(f"{URL}{lent.pk}/end/")
    assert not Delegation.objects.filter(ended_at__isnull=False).exists()
    assert signed_in(bea).get(f"{URL}{lent.pk}/end/").status_code == 405


def test_who_decides_nothing_has_nothing_to_lend(sam: User, dana: User) -> None:
    assert "you have no right to lend" in signed_in(sam).get(URL).content.decode()
    assert page_of_settings.DELEGATION.url == "settings_delegation"


def test_the_inbox_of_the_deputy_shows_for_whom(sam: User, bea: User, dana: User, finance: Group) -> None:
    lent = make_waiting(sam, groups=(finance.pk,))
    own = make_waiting(sam)
    client = signed_in(dana)
    before = client.get("/inbox/")
    assert (before.context["counts"].needs, "For Bea" in before.content.decode()) == (1, False)
    delegation = lend(bea, dana, finance)
    html = client.get("/inbox/")
    assert html.context["counts"].needs == 2
    assert html.content.decode().count('<b class="q-for">For Bea Lender</b>') == 1
    rows = client.get("/inbox/rows/", {"shown": [str(lent.pk), str(own.pk)]}).content.decode()
    assert rows.count("For Bea Lender") == 1
    assert "You decide for <b>Bea Lender</b>" in client.get(f"/inbox/peek/{lent.pk}/").content.decode()
    assert "For Bea" not in signed_in(bea).get("/inbox/").content.decode()
    assert delegations.end(delegation.pk, User.objects.get(pk=bea.pk))
    assert client.get("/inbox/").context["counts"].needs == 1
    assert client.get(f"/approvals/{lent.pk}/").status_code == 404


@pytest.mark.parametrize("path", ["/inbox/", "/inbox/?view=decided", "/inbox/peek/{}/", "/approvals/{}/", URL])
def test_a_lent_right_costs_no_query_per_row(
    sam: User, bea: User, dana: User, finance: Group, path: str,
    django_assert_max_num_queries: Any,
) -> None:  # fmt: skip
    lend(bea, dana, finance)
    for _ in range(6):
        approval = make_waiting(sam, groups=(finance.pk,))
    client = signed_in(dana)
    client.post(f"/approvals/{approval.pk}/decide/", posted(approval))
    other = make_waiting(sam, groups=(finance.pk,))
    client.get("/inbox/")
    with django_assert_max_num_queries(12):
        assert client.get(path.format(other.pk)).status_code == 200


def test_a_decision_reads_as_one_for_the_other_everywhere(sam: User, bea: User, dana: User, finance: Group) -> None:
    lend(bea, dana, finance)
    approval = make_waiting(sam, groups=(finance.pk,))
    client = signed_in(dana)
    client.post(f"/approvals/{approval.pk}/decide/", posted(approval))
    name = "Dana Whitfield for Bea Lender"
    html = client.get(f"/approvals/{approval.pk}/").content.decode()
    assert f"<strong>{name} approved it.</strong>" in html
    assert f"<span>{name} approved</span>" in html  # the history
    assert "Approved by Dana for Bea" in client.get("/inbox/", {"view": "decided"}).content.decode()
    assert name in client.get(f"/runs/{approval.run_id}/", {"step": 1}).content.decode()
    # The second person is told.
    late = signed_in(bea).post(f"/approvals/{approval.pk}/decide/", posted(approval))
    assert late.status_code == 409
    assert f"{name} already approved it" in late.content.decode()


def test_who_was_decided_for_is_told_so(sam: User, bea: User, dana: User, finance: Group) -> None:
    lend(bea, dana, finance)
    approval = make_waiting(sam, groups=(finance.pk,), approvals_needed=2)
    signed_in(dana).post(f"/approvals/{approval.pk}/decide/", posted(approval))
    html = signed_in(bea).get(f"/approvals/{approval.pk}/").content.decode()
    assert "Dana Whitfield has approved for you. This request needs another person too." in html
    assert 'value="approve"' not in html


def test_a_lent_right_does_not_take_the_run_over(sam: User, bea: User, dana: User, finance: Group) -> None:
    approval = make_waiting(sam, groups=(finance.pk,))
    lend(bea, dana, finance)
    assert "/take-over/" not in signed_in(dana).get(f"/approvals/{approval.pk}/").content.decode()
    assert "/take-over/" in signed_in(bea).get(f"/approvals/{approval.pk}/").content.decode()
    signed_in(dana).post(f"/runs/{approval.run_id}/take-over/")
    assert not Event.objects.filter(type="run.taken_over").exists()


def test_the_admin_lists_what_is_lent_and_ends_it(ada: User, bea: User, dana: User, mia: User, finance: Group) -> None:
    lent = lend(bea, dana, finance)
    client = signed_in(ada)
    html = client.get("/admin/approvals/delegation/").content.decode()
    assert "End at once" in html
    assert client.get(f"/admin/approvals/delegation/{lent.pk}/change/").status_code == 200
    form = {"action": "revoke", "_selected_action": str(lent.pk)}
    assert "1 ended." in client.post("/admin/approvals/delegation/", form, follow=True).content.decode()
    lent.refresh_from_db()
    assert lent.ended_by == ada
    assert Event.objects.get(type="delegation.ended").actor == ledger.actor_of(ada, "admin")


def test_who_may_only_look_at_the_admins_list_ends_nothing(ada: User, bea: User, dana: User, finance: Group) -> None:
    lent = lend(bea, dana, finance)
    admins = Group.objects.get(name="admin")
    admins.permissions.remove(admins.permissions.get(codename="revoke_delegation"))
    client = signed_in(ada)
    assert "End at once" not in client.get("/admin/approvals/delegation/").content.decode()
    client.post("/admin/approvals/delegation/", {"action": "revoke", "_selected_action": str(lent.pk)})
    assert not Delegation.objects.filter(ended_at__isnull=False).exists()
    assert client.post("/admin/approvals/delegation/add/", {}).status_code == 403
