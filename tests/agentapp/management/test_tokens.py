"""create_token and revoke_token."""

from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.utils import timezone

from agentapp import auth
from agentapp.models import ApiToken
from approvals.models import Event


def run(*arguments: str) -> str:
    out = StringIO()
    call_command(*arguments, stdout=out, stderr=StringIO())
    return out.getvalue().strip()


def test_a_made_token_lets_its_person_in(sam: User) -> None:
    secret = run("create_token", "sam", "--name", "tickets", "--scope", "runs:create", "--scope", "runs:read")
    token = auth.authenticate(secret)
    assert token is not None
    assert (token.user, token.name, token.scopes) == (sam, "tickets", ["runs:create", "runs:read"])
    assert token.expires_at is None
    assert secret not in str(list(ApiToken.objects.values()) + list(Event.objects.values("body")))
    assert Event.objects.get(chain="configuration").type == "token.issued"


def test_a_token_can_be_made_to_end(sam: User) -> None:
    run("create_token", "sam", "--name", "tickets", "--scope", "runs:read", "--expires-days", "30")
    ends = ApiToken.objects.get().expires_at
    assert ends is not None
    assert abs(ends - timezone.now() - timedelta(days=30)) < timedelta(minutes=1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nobody", "--name", "n", "--scope", "runs:read"], "no person named 'nobody'"),
        (["sam", "--name", " ", "--scope", "runs:read"], "1 to 80 characters"),
        (["sam", "--name", "n" * 81, "--scope", "runs:read"], "1 to 80 characters"),
        (["sam", "--name", "n", "--scope", "everything"], "invalid choice"),
        (["sam", "--name", "n"], "--scope"),
        (["sam", "--name", "n", "--scope", "runs:create", "--scope", "approvals:decide"], "cannot decide"),
        (["sam", "--name", "n", "--scope", "runs:read", "--expires-days", "0"], "between 1 and"),
        (["sam", "--name", "n", "--scope", "runs:read", "--expires-days", "99999999999"], "between 1 and"),
    ],
)
def test_a_token_that_makes_no_sense_is_not_made(sam: User, arguments: list[str], words: str) -> None:
    with pytest.raises(CommandError, match=words):
        run("create_token", *arguments)
    assert not ApiToken.objects.exists()


def test_nobody_gets_a_token_who_is_not_active(sam: User) -> None:
    User.objects.update(is_active=False)
    with pytest.raises(CommandError, match="not active"):
        run("create_token", "sam", "--name", "n", "--scope", "runs:read")


@pytest.mark.parametrize("told", ["the prefix", "the secret", "as the list shows it"])
def test_a_revoked_token_lets_nobody_in(sam: User, told: str) -> None:
    token, secret = auth.issue_token(sam, "tickets", ["runs:read"], "system")
    given = {"the prefix": token.prefix, "the secret": secret, "as the list shows it": f"{token.prefix}…"}[told]
    assert run("revoke_token", given) == f"Revoked tickets ({token.prefix}…) of sam."
    assert auth.authenticate(secret) is None
    assert Event.objects.filter(chain="configuration").last().type == "token.revoked"  # type: ignore[union-attr]
    with pytest.raises(CommandError, match="already been revoked"):
        run("revoke_token", token.prefix)


def test_a_prefix_that_names_no_token_or_two_ends_none(sam: User) -> None:
    made: list[Any] = [auth.issue_token(sam, name, ["runs:read"], "system")[0] for name in ("one", "two")]
    ApiToken.objects.filter(pk=made[1].pk).update(prefix=made[0].prefix)
    for prefix, words in ((made[0].prefix, "2 tokens"), ("cs_nothing", "no token"), ("cs_", "at least 6")):
        with pytest.raises(CommandError, match=words):
            run("revoke_token", prefix)
    assert not ApiToken.objects.filter(revoked_at__isnull=False).exists()


def test_a_new_token_takes_the_place_of_one_that_still_opens_for_a_while(sam: User) -> None:
    old = run("create_token", "sam", "--name", "tickets", "--scope", "runs:read", "--expires-days", "30")
    new = run("rotate_token", old, "--overlap-hours", "2")
    tokens = [auth.authenticate(secret) for secret in (old, new)]
    assert [(token.user, token.scopes) for token in tokens if token] == [(sam, ["runs:read"])] * 2
    ends = [token.expires_at - timezone.now() for token in tokens if token and token.expires_at]
    assert [abs(left - planned) < timedelta(minutes=1) for left, planned in zip(
        ends, (timedelta(hours=2), timedelta(days=30)), strict=True
    )] == [True, True]  # fmt: skip
    assert Event.objects.filter(chain="configuration").last().type == "token.rotated"  # type: ignore[union-attr]
    run("rotate_token", new, "--overlap-hours", "0")
    assert auth.authenticate(new) is None


def test_nothing_takes_the_place_of_a_token_that_has_ended(sam: User) -> None:
    old = run("create_token", "sam", "--name", "tickets", "--scope", "runs:read")
    auth.revoke_token(ApiToken.objects.get(), actor="system")
    with pytest.raises(CommandError, match="No tokens that have not been revoked"):
        run("rotate_token", old)
    with pytest.raises(auth.TokenRefused, match="has ended"):
        auth.rotate_token(ApiToken.objects.get(), "system", timedelta(0))
    assert ApiToken.objects.count() == 1
