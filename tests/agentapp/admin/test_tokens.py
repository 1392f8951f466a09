"""Tokens are issued once, shown once, revoked for good, and decide for nobody else."""

from datetime import timedelta
from typing import Any
from urllib.parse import unquote

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, User
from django.db.models import Q
from django.test import Client
from django.utils import timezone

from agentapp import actions, auth
from agentapp.models import ApiToken
from approvals.models import Event
from tests.admin_pages import address, configuration_events, errors_of, renew, submit
from tests.conftest import Clerk, call, calls, says

pytestmark = pytest.mark.django_db


@pytest.fixture
def staff(client: Client, ada: User) -> Client:
    client.force_login(ada)
    renew(client)
    return client


def issue(staff: Client, user: User, *scopes: str, **fields: Any) -> Any:
    return submit(staff, address(ApiToken, "add"), name="importer", user=str(user.pk), scopes=list(scopes), **fields)


def secret_in(response: Any) -> str:
    assert response.status_code == 200
    return str(response.content.decode().split('id="secret" tabindex="0">')[1].split("<")[0])


def test_a_token_is_issued_and_its_secret_shown_once(staff: Client, sam: User) -> None:
    response = issue(staff, sam, "runs:create", "runs:read")
    secret = secret_in(response)
    token = auth.authenticate(secret)
    assert token is not None
    assert (token.user, token.scopes, token.starts_runs) == (sam, ["runs:create", "runs:read"], True)
    assert secret not in staff.get(address(ApiToken, "changelist")).content.decode()
    assert secret not in staff.get(address(ApiToken, "change", token.pk)).content.decode()
    [event] = configuration_events()
    assert event.type == "token.issued"
    assert secret not in event.body


def test_a_secret_is_in_the_answer_alone_and_in_nothing_that_is_kept(staff: Client, sam: User) -> None:
    for button in ("_save", "_continue", "_addanother"):
        response = issue(staff, sam, "runs:read", **{button: "1"})
        secret = secret_in(response)
        assert "no-store" in response.headers["Cache-Control"]
        assert "messages" not in staff.cookies
        assert not [name for name, kept in staff.cookies.items() if secret in kept.value]
        assert secret not in str(dict(staff.session))
        assert not LogEntry.objects.filter(
            Q(change_message__contains=secret) | Q(object_repr__contains=secret)
        ).exists()
        assert secret not in staff.get(address(ApiToken, "changelist")).content.decode()


@pytest.mark.parametrize(
    ("scopes", "message"),
    [
        (["runs:create", "approvals:decide"], "A token that starts runs cannot decide."),
        ([], "This field is required"),
        (["everything"], "everything is not one of the available choices"),
    ],
)
def test_scopes_that_do_not_go_together_are_refused(staff: Client, ada: User, scopes: list[str], message: str) -> None:
    assert message in errors_of(issue(staff, ada, *scopes))
    assert not ApiToken.objects.exists()


def test_nobody_makes_a_token_that_decides_as_somebody_else(staff: Client, ada: User, dana: User) -> None:
    assert auth.ONLY_FOR_ONESELF in errors_of(issue(staff, dana, "approvals:decide"))
    ada.groups.add(Group.objects.get(name="approver"))
    assert secret_in(issue(staff, ada, "approvals:decide"))
    assert ApiToken.objects.get().user == ada


def test_nobody_makes_a_token_that_comments_as_somebody_else(staff: Client, ada: User, dana: User) -> None:
    assert auth.ONLY_FOR_ONESELF in errors_of(issue(staff, dana, "approvals:read", "approvals:comment"))
    assert not ApiToken.objects.exists()
    assert secret_in(issue(staff, ada, "approvals:comment"))


def test_what_is_for_oneself_is_issued_to_nobody_else_by_whatever_way(ada: User, dana: User) -> None:
    for scope in ("approvals:decide", "approvals:comment"):
        with pytest.raises(auth.TokenRefused):
            auth.issue_token(dana, "importer", [scope], "test", issued_by=ada)
        token, _ = auth.issue_token(dana, "importer", [scope], "test", issued_by=dana)
        assert auth.holds(token, scope)
        ApiToken.objects.filter(pk=token.pk).update(issued_by=ada)  # like an earlier token
        token.refresh_from_db()
        assert not auth.holds(token, scope)
        with pytest.raises(auth.TokenRefused):
            auth.rotate_token(token, "test", timedelta(0))


def a_token(staff: Client, user: User, *scopes: str) -> ApiToken:
    token = auth.authenticate(secret_in(issue(staff, user, *scopes)))
    assert token is not None
    return token


def test_whoever_makes_a_token_for_another_decides_nothing_about_the_runs_it_starts(
    clerk: Clerk, staff: Client, sam: User, ada: User
) -> None:
    ada.groups.add(Group.objects.get(name="approver"))
    token = a_token(staff, sam, "runs:create")
    token, _ = auth.rotate_token(token, "test", timedelta(0))
    script = [calls(call("s", "send", to="ada")), says("done")]
    run = clerk.drive(actions.start_run(actions.NewRun("clerk", "Send it.", script=script), sam, token))
    [approval] = clerk.open(run)
    assert approval.excluded == [ada.pk]
    with pytest.raises(actions.Refused, match="made the token") as refused:
        clerk.decide(approval, User.objects.get(pk=ada.pk))
    assert refused.value.code == "took_over"
    actions.cancel_run(run.pk, sam)
    [again] = clerk.open(clerk.drive(actions.retry_run(run.pk, sam, 1)))
    with pytest.raises(actions.Refused, match="made the token"):
        clerk.decide(again, User.objects.get(pk=ada.pk))


def test_the_page_of_a_token_says_who_made_it_for_another(staff: Client, sam: User, ada: User) -> None:
    for user, maker, shown in ((sam, ada, "ada"), (ada, None, "The person it acts as, or a command")):
        token = a_token(staff, user, "runs:read")
        assert token.issued_by == maker
        page = staff.get(address(ApiToken, "change", token.pk)).content.decode()
        assert shown in page.split("Made by")[1].split("</div>")[0]


def test_a_token_does_not_begin_expired(staff: Client, sam: User) -> None:
    past = {"expires_at_0": "2020-01-01", "expires_at_1": "00:00:00"}
    assert "This moment has passed." in errors_of(issue(staff, sam, "runs:read", **past))
    soon = timezone.now() + timedelta(days=1)
    future = {"expires_at_0": f"{soon:%Y-%m-%d}", "expires_at_1": f"{soon:%H:%M:%S}"}
    issue(staff, sam, "runs:read", **future)
    assert ApiToken.objects.get().expires_at is not None


def test_a_token_does_not_end_where_the_calendar_does(staff: Client, sam: User, settings: Any) -> None:
    settings.TIME_ZONE = "America/New_York"
    last = {"expires_at_0": "9999-12-31", "expires_at_1": "23:59:00"}
    assert "more than ten years from now" in errors_of(issue(staff, sam, "runs:read", **last))
    assert staff.get(address(ApiToken, "changelist")).status_code == 200
    assert not ApiToken.objects.exists()


@pytest.mark.parametrize("page", ["changelist", "change"])
def test_a_token_is_revoked_from_the_list_and_from_its_page(staff: Client, sam: User, page: str) -> None:
    token, secret = auth.issue_token(sam, "importer", ["runs:read"], "test")
    url = address(ApiToken, page, *([token.pk] if page == "change" else []))
    prefix = "CHANGE_FORM-" if page == "change" else ""
    staff.post(url, {f"{prefix}action": "revoke", "_selected_action": [str(token.pk)]})
    assert auth.authenticate(secret) is None
    assert configuration_events()[-1].type == "token.revoked"


def test_a_token_that_is_there_is_never_changed_or_deleted(staff: Client, sam: User, ada: User) -> None:
    token, secret = auth.issue_token(sam, "importer", ["runs:read"], "test")
    seen = Event.objects.count()
    staff.post(address(ApiToken, "change", token.pk), {"name": "x", "user": str(ada.pk), "scopes": ["runs:create"]})
    assert staff.post(address(ApiToken, "delete", token.pk), {"post": "yes"}).status_code == 403
    token.refresh_from_db()
    assert (token.name, token.user, token.scopes) == ("importer", sam, ["runs:read"])
    assert auth.authenticate(secret) is not None
    assert Event.objects.count() == seen


def test_tokens_are_told_apart_by_whether_they_work(staff: Client, ada: User) -> None:
    for name in ("works", "is-over", "was-revoked"):
        auth.issue_token(ada, name, ["runs:read"], "test")
    now = timezone.now()
    ApiToken.objects.filter(name="is-over").update(expires_at=now - timedelta(seconds=1))
    ApiToken.objects.filter(name="was-revoked").update(revoked_at=now)
    for state, name in {"active": "works", "expired": "is-over", "revoked": "was-revoked"}.items():
        shown = staff.get(address(ApiToken, "changelist"), {"state": state}).context["cl"].result_list
        assert [token.name for token in shown] == [name]
    text = staff.get(address(ApiToken, "changelist")).content.decode()
    for word in ("Active", "Expired", "Revoked"):
        assert f'<td class="field-standing">{word}</td>' in text


LATER = 600
SHOWN = {"password": "correct horse battery"}


def test_making_a_token_asks_who_one_is_before_the_form_and_goes_on_with_what_was_filled_in(
    staff: Client, sam: User
) -> None:
    url = address(ApiToken, "add")
    form = {"name": "nightly", "user": str(sam.pk), "scopes": ["runs:read", "runs:create"]}
    renew(staff, LATER)
    assert unquote(staff.get(url)["Location"]) == f"/reauthenticate/?next={url}"
    asked = staff.post(f"{url}?user={sam.pk}", form)
    assert unquote(asked["Location"]) == f"/reauthenticate/?next={url}"
    assert not ApiToken.objects.exists()

    made = auth.authenticate(secret_in(staff.post("/reauthenticate/", {**SHOWN, "next": url})))

    assert made is not None
    assert (made.name, made.user, made.scopes) == ("nightly", sam, ["runs:create", "runs:read"])


def test_a_form_that_somebody_left_does_not_go_on_when_they_open_it_anew(staff: Client, sam: User) -> None:
    url = address(ApiToken, "add")
    renew(staff, LATER)
    staff.post(url, {"name": "nightly", "user": str(sam.pk), "scopes": ["runs:read"]})
    staff.get(url)

    assert staff.post("/reauthenticate/", {**SHOWN, "next": url})["Location"] == url
    assert not ApiToken.objects.exists()


def test_revoking_a_token_asks_nobody_who_they_are(staff: Client, sam: User) -> None:
    token, secret = auth.issue_token(sam, "importer", ["runs:read"], "test")
    renew(staff, LATER)
    staff.post(address(ApiToken, "changelist"), {"action": "revoke", "_selected_action": [str(token.pk)]})
    assert auth.authenticate(secret) is None
