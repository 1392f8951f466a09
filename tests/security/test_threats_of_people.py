"""Threats of who is asking, and when, tested like those of `test_threats.py`: sessions, tokens and rights."""

import json
from contextlib import suppress
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib import auth as sign_in
from django.contrib.auth.models import Permission, User
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from agentapp import actions, auth, renewed, takers
from agentapp.models import ApiToken, Run
from approvals import entitlement, step_up
from approvals.entitlement import Sight
from approvals.models import Decision
from tests.admin_pages import renew
from tests.clerk_tools import effects_of
from tests.conftest import says
from tests.security.scene import PAY, Scene, Threat, body_of, scene, tried

__all__ = ["scene"]


def api(secret: str) -> Client:
    return Client(headers={"authorization": f"Bearer {secret}"})


def token(user: User, *scopes: str, by: User | None = None) -> str:
    return auth.issue_token(user, "of a test", list(scopes), "test", issued_by=by or user)[1]


# --- Whoever was signed in -----------------------------------------------------------------------


def decides_after(scene: Scene, what_happens: Any) -> bool:
    """Whether Dana decides from a page that she opened before something happened."""
    _, approval = scene.asked()
    browser, page = scene.browser(scene.dana), f"/approvals/{approval.pk}/"
    assert browser.get(page).status_code == 200
    what_happens(browser)
    browser.post(f"{page}decide/", body_of(approval))
    return Decision.objects.exists()


def a_right_is_taken_away_while_the_page_is_open(scene: Scene) -> bool:
    return decides_after(scene, lambda browser: scene.dana.groups.clear())


def an_account_is_closed_while_the_page_is_open(scene: Scene) -> bool:
    return decides_after(scene, lambda browser: User.objects.filter(pk=scene.dana.pk).update(is_active=False))


def a_password_is_changed_while_the_page_is_open(scene: Scene) -> bool:
    def change(browser: Client) -> None:
        dana = User.objects.get(pk=scene.dana.pk)
        dana.set_password("another horse battery")
        dana.save()

    return decides_after(scene, change)


def a_session_is_ended_while_the_page_is_open(scene: Scene) -> bool:
    return decides_after(scene, lambda browser: Session.objects.all().delete())


def people_are_remembered(scene: Scene) -> None:
    """By their cookie, as they were when they opened the page: with their rights, and nothing is looked up again."""
    real, known = sign_in.get_user, dict[str, Any]()

    def remembered(request: Any) -> Any:
        key = request.COOKIES.get(settings.SESSION_COOKIE_NAME, "")
        return known.get(key) or known.setdefault(key, real(request))

    scene.patch.setattr(sign_in, "get_user", remembered)


def a_session_outlives_its_day(scene: Scene) -> bool:
    yesterday = timezone.now() - timedelta(days=1)
    return decides_after(scene, lambda browser: Session.objects.update(expire_date=yesterday))


def sessions_never_end(scene: Scene) -> None:
    def of_any_age(self: SessionStore) -> Any:
        return self.model.objects.filter(session_key=self.session_key).first()

    scene.patch.setattr(SessionStore, "_get_session_from_db", of_any_age)


def a_revoked_token_reads(scene: Scene) -> bool:
    secret = token(scene.dana, "approvals:read")
    auth.revoke_token(ApiToken.objects.get(), "test")
    return api(secret).get("/api/v1/approvals").status_code == 200


def an_expired_token_reads(scene: Scene) -> bool:
    secret = token(scene.dana, "approvals:read")
    ApiToken.objects.update(expires_at=timezone.now() - timedelta(days=1))
    return api(secret).get("/api/v1/approvals").status_code == 200


def tokens_never_end(scene: Scene) -> None:
    def authenticate(secret: str) -> ApiToken | None:
        return ApiToken.objects.select_related("user").filter(digest=auth._digest(secret), user__is_active=True).first()

    scene.patch.setattr(auth, "authenticate", authenticate)


def an_unlocked_screen_makes_a_token(scene: Scene) -> bool:
    said = {"name": "mine", "scopes": ["approvals:read"], "days": "30"}
    scene.browser(scene.dana).post("/settings/tokens/new/", said)
    return ApiToken.objects.exists()


def nobody_confirms_who_they_are(scene: Scene) -> None:
    scene.patch.setattr(renewed, "is_renewed", lambda request: True)


def a_sign_in_of_this_morning_pays(scene: Scene) -> bool:
    scene.settings.STEP_UP = {"irreversible": "passkey"}
    run, approval = scene.asked()
    browser = scene.browser(scene.dana)
    renew(browser, ago=3600)
    browser.post(f"/approvals/{approval.pk}/decide/", body_of(approval))
    scene.clerk.drive(run)
    return bool(effects_of("pay"))


def every_sign_in_is_enough(scene: Scene) -> None:
    """Three places compare: as it is decided, as decisions are counted, and before the call."""
    scene.patch.setattr(step_up, "is_enough", lambda shown, needed: True)
    scene.patch.setattr(step_up, "enough_for", lambda needed: step_up.LEVELS)


# --- Whose run it is -----------------------------------------------------------------------------


def the_starter_approves_by_a_token_in_anothers_name(scene: Scene) -> bool:
    _, approval = scene.asked()
    with suppress(auth.TokenRefused):
        said = {**body_of(approval), "type": "approve"}
        program = api(token(scene.dana, "approvals:decide", by=scene.clerk.starter))
        program.post(f"/api/v1/approvals/{approval.pk}/decisions", json.dumps(said), content_type="application/json")
    return Decision.objects.exists()


def tokens_decide_for_anybody(scene: Scene) -> None:
    """Two places ask whose decision it is: the one that makes a token, and the one that uses it."""
    scene.patch.setattr(auth, "FOR_ONESELF", frozenset())


def whoever_made_the_token_approves_what_it_started(scene: Scene) -> bool:
    started = ApiToken.objects.get(digest=auth._digest(token(scene.clerk.starter, "runs:create", by=scene.dana)))
    new = actions.NewRun(agent="clerk", input="Pay.", script=[PAY, says("done")])
    run = scene.clerk.drive(actions.start_run(new, scene.clerk.starter, started))
    [approval] = scene.clerk.open(run)
    scene.browser(scene.dana).post(f"/approvals/{approval.pk}/decide/", body_of(approval))
    return Decision.objects.exists()


def nobody_asks_who_made_a_token(scene: Scene) -> None:
    scene.patch.setattr(takers, "of", lambda *_: [])


# --- Whose words they are ------------------------------------------------------------------------


def a_stranger_reads_a_request(scene: Scene) -> bool:
    _, approval = scene.asked()
    return scene.browser(scene.outsider).get(f"/approvals/{approval.pk}/").status_code == 200


def a_stranger_reads_a_request_by_a_token(scene: Scene) -> bool:
    _, approval = scene.asked()
    program = api(token(scene.outsider, "approvals:read"))
    return program.get(f"/api/v1/approvals/{approval.pk}").status_code == 200


def requests_are_everybodys(scene: Scene) -> None:
    scene.patch.setattr(entitlement, "sight_of", lambda user: Sight.ALL)


def a_stranger_exports_a_run(scene: Scene) -> bool:
    run, _ = scene.asked()
    scene.outsider.user_permissions.add(Permission.objects.get(codename="view_event"))
    answer = scene.browser(scene.outsider).post("/audit/export/jsonl/")
    assert answer.status_code == 200
    return str(run.pk) in b"".join(answer.streaming_content).decode()


def a_stranger_reads_a_run_by_a_token(scene: Scene) -> bool:
    run, _ = scene.asked()
    return api(token(scene.outsider, "runs:read")).get(f"/api/v1/runs/{run.pk}").status_code == 200


def runs_are_everybodys(scene: Scene) -> None:
    scene.patch.setattr(auth, "visible_runs", lambda user: Run.objects.all())


THREATS = [
    Threat(4, "whoever started a run approves it by a token in another's name", "tokens decide for their maker",
           the_starter_approves_by_a_token_in_anothers_name, tokens_decide_for_anybody),
    Threat(4, "whoever made a token approves what it started", "the maker of a token is compared",
           whoever_made_the_token_approves_what_it_started, nobody_asks_who_made_a_token),
    Threat(11, "a stranger reads a request", "one queryset for each person", a_stranger_reads_a_request,
           requests_are_everybodys),
    Threat(11, "a stranger reads a request by a token", "one queryset for each person",
           a_stranger_reads_a_request_by_a_token, requests_are_everybodys),
    Threat(11, "a stranger reads a run by a token", "one queryset for each person", a_stranger_reads_a_run_by_a_token,
           runs_are_everybodys),
    Threat(11, "a stranger exports a run", "one queryset for each person", a_stranger_exports_a_run,
           runs_are_everybodys),
    Threat(21, "a right is taken away while the page is open", "people are read with each request",
           a_right_is_taken_away_while_the_page_is_open, people_are_remembered),
    Threat(21, "an account is closed while the page is open", "people are read with each request",
           an_account_is_closed_while_the_page_is_open, people_are_remembered),
    Threat(21, "a password is changed while the page is open", "people are read with each request",
           a_password_is_changed_while_the_page_is_open, people_are_remembered),
    Threat(21, "a session is ended while the page is open", "people are read with each request",
           a_session_is_ended_while_the_page_is_open, people_are_remembered),
    Threat(21, "a session outlives its day", "sessions end", a_session_outlives_its_day, sessions_never_end),
    Threat(21, "a revoked token reads", "tokens end", a_revoked_token_reads, tokens_never_end),
    Threat(21, "an expired token reads", "tokens end", an_expired_token_reads, tokens_never_end),
    Threat(21, "an unlocked screen makes a token", "people confirm who they are", an_unlocked_screen_makes_a_token,
           nobody_confirms_who_they_are),
    Threat(21, "a sign-in of this morning pays", "what somebody has shown is compared",
           a_sign_in_of_this_morning_pays, every_sign_in_is_enough),
]  # fmt: skip
test_the_attack_fails, test_without_the_defence_it_succeeds = tried(THREATS)
