"""API tokens and their scopes; who may see a run or a request, and start, cancel or resolve.

Who may *decide* is the business of `approvals.standing.may_decide`.
"""

import hashlib
import secrets
import uuid
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from importlib import import_module

from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import DatabaseError
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.http import HttpRequest

from agentapp.models import ApiToken, Conversation, Message, Run
from approvals import clock, entitlement, ledger
from approvals.clock import Now
from approvals.models import Approval, Event, Grant
from approvals.standing import decides_themself

SCOPES = {
    "runs:create": (
        "Start, retry, fork, replay, pause, resume and cancel runs, take them over, write to customers and hand back, "
        "ask people again, have calls undone, fork and summarise conversations"
    ),
    "runs:read": "Read runs and their traces, and conversations",
    "conversations:write": "Speak with customers: open conversations, write, confirm and ask for a person as they say",
    "approvals:read": "Read approvals",
    "approvals:decide": "Decide approvals and resolve unknown outcomes, as the token's person",
    "approvals:comment": "Comment on approvals, as the token's person",
    "events:read": "Read the ledger",
    "configuration:read": "Read agents, tools and grants, and what is stopped",
    "controls:operate": "Engage and release kill switches, reset breakers and revoke grants, as the token's person",
}
_PUT_ASIDE, _GOES_ON = ("run.paused", "run.pause_requested"), ("run.resumed", "run.handed_back")
STARTS_RUNS = frozenset({"runs:create", "conversations:write"})
# What people say and decide is their own: a token made for somebody else has none of these scopes.
FOR_ONESELF = frozenset({"approvals:decide", "approvals:comment"})
PREFIX = "cs_"
# Recording every use would make each API call a write.
_NOTE_USE_EVERY = timedelta(minutes=1)
ONLY_FOR_ONESELF = "Only the person in whose name a token decides or comments can make it."


class TokenRefused(ValidationError):
    """A token cannot be made as asked. `message` says why, and a form shows it at the field."""


def person_of(session_key: str) -> User | None:
    """The person whose session this is, while it is valid. A session that is no longer valid is deleted."""
    request = HttpRequest()
    session = import_module(settings.SESSION_ENGINE).SessionStore(session_key)
    # A session signed with an earlier SECRET_KEY would get a new key, which only a response with a cookie can carry.
    session.cycle_key = lambda: None
    request.session = session
    user = get_user(request)
    return user if isinstance(user, User) and user.is_active else None


def issue_token(
    user: User,
    name: str,
    scopes: list[str],
    actor: str,
    expires_at: datetime | None = None,
    issued_by: User | None = None,
) -> tuple[ApiToken, str]:
    """Make a token. Returns its row and the secret, which is shown only once and stored nowhere.

    `issued_by` reads that secret. If this is not the person the token acts as, the row keeps it, and the token neither
    decides nor comments. Raises TokenRefused.
    """
    check_scopes(scopes)
    if issued_by not in (None, user) and FOR_ONESELF & set(scopes):
        raise TokenRefused(ONLY_FOR_ONESELF)
    secret = PREFIX + secrets.token_urlsafe(32)
    with ledger.transaction():
        token = ApiToken.objects.create(
            name=name,
            user=user,
            issued_by=issued_by if issued_by != user else None,
            scopes=sorted(set(scopes)),
            starts_runs=bool(STARTS_RUNS & set(scopes)),
            decides="approvals:decide" in scopes,
            prefix=secret[:10],
            digest=_digest(secret),
            created_at=Now(),
            expires_at=expires_at,
        )
        data = {"token": str(token.pk), "name": name, "scopes": token.scopes, "user": user.get_username()}
        ledger.record(ledger.CONFIGURATION, "token.issued", data, actor)
    return token, secret


def check_scopes(scopes: list[str]) -> None:
    """Raises TokenRefused unless a token may have these scopes together."""
    unknown = sorted(set(scopes) - set(SCOPES))
    if unknown:
        raise TokenRefused(f"Unknown scope {unknown[0]!r}; known are {', '.join(SCOPES)}.")
    if not scopes:
        raise TokenRefused("A token needs at least one scope.")
    if STARTS_RUNS & set(scopes) and "approvals:decide" in scopes:
        raise TokenRefused("A token that starts runs cannot decide. Make two tokens, preferably for two people.")


def revoke_token(token: ApiToken, actor: str) -> bool:
    """End a token at once. False: it was already revoked."""
    with ledger.transaction():
        changed = ApiToken.objects.filter(pk=token.pk, revoked_at__isnull=True).update(revoked_at=Now())
        if changed:
            ledger.record(ledger.CONFIGURATION, "token.revoked", {"token": str(token.pk), "name": token.name}, actor)
    return bool(changed)


def rotate_token(token: ApiToken, actor: str, overlap: timedelta) -> tuple[ApiToken, str]:
    """Replace a token with a new one. The old one ends after `overlap`, which leaves time to hand out the new one.

    The new token acts as the same person with the same scopes, lasts as long as the old one was made for, and counts
    as made by the same person. Raises TokenRefused.
    """
    with ledger.transaction():
        old, now = ApiToken.objects.select_for_update().select_related("user").get(pk=token.pk), clock.asked()
        if old.revoked_at or (old.expires_at and old.expires_at <= now) or not old.user.is_active:
            raise TokenRefused("This token has ended, so it cannot be replaced.")
        lasts = now + (old.expires_at - old.created_at) if old.expires_at else None
        new, secret = issue_token(old.user, old.name, old.scopes, actor, lasts, old.issued_by)
        ends = min(filter(None, [old.expires_at, now + overlap]))
        ApiToken.objects.filter(pk=old.pk).update(expires_at=ends)
        data = {"token": str(old.pk), "name": old.name, "new": str(new.pk), "ends_at": ends.isoformat()}
        ledger.record(ledger.CONFIGURATION, "token.rotated", data, actor)
    return new, secret


def authenticate(secret: str) -> ApiToken | None:
    """The live token behind a secret, or None. Its person must still be active."""
    tokens = ApiToken.objects.annotate(database_now=Now()).select_related("user")
    token = tokens.filter(digest=_digest(secret)).first()
    if token is None or token.revoked_at or not token.user.is_active:
        return None
    now: datetime = token.database_now
    if token.expires_at and token.expires_at <= now:
        return None
    if token.last_used_at is None or now - token.last_used_at > _NOTE_USE_EVERY:
        with suppress(DatabaseError):  # a read-only database still authenticates
            ApiToken.objects.filter(pk=token.pk).update(last_used_at=now)
    return token


def holds(token: ApiToken, scope: str) -> bool:
    """Whether a token may do this. A token made by somebody else, even an old one, cannot decide or comment."""
    return scope in token.scopes and not (scope in FOR_ONESELF and token.issued_by_id is not None)


def visible_runs(user: User) -> QuerySet[Run]:
    """The runs a person may see: all with the right to view runs, else the ones they started."""
    runs = Run.objects.all()
    return runs if user.has_perm("agentapp.view_run") else runs.filter(starter=user)


def may_see(user: User, run: Run) -> bool:
    """Whether `visible_runs` has this run."""
    return run.starter_id == user.pk or user.has_perm("agentapp.view_run")


def visible_conversations(user: User) -> QuerySet[Conversation]:
    """The conversations of which a person may see any part: those with a run they may see."""
    if user.has_perm("agentapp.view_run"):
        return Conversation.objects.all()
    return Conversation.objects.filter(Exists(visible_messages(user).filter(conversation=OuterRef("pk"))))


def visible_messages(user: User) -> QuerySet[Message]:
    """What was said in the runs a person may see."""
    messages = Message.objects.all()
    return messages if user.has_perm("agentapp.view_run") else messages.filter(run__starter=user)


def visible_approvals(user: User) -> QuerySet[Approval]:
    """The requests a person may see: all, those they may be asked about, or those of their own runs."""
    return entitlement.visible(user)


def may_start(user: User) -> bool:
    return user.is_active and user.has_perm("agentapp.start_run")


def may_mock(user: User) -> bool:
    """Whether a person may start mocked runs: those who may run evals."""
    return user.is_active and user.has_perm("agentapp.run_eval")


def may_suppose_rules(user: User) -> bool:
    """Whether a person may have mocked runs judged by rules not in force: this shows what drafts say."""
    return user.is_active and user.has_perm("approvals.view_rule")


def may_join(user: User, conversation: Conversation) -> bool:
    """Whether a person may start a run in a conversation: the run, and so the person, sees what was said before."""
    # A fork does not contain the runs whose messages it begins with.
    others = Run.objects.filter(Q(conversation=conversation) | Q(messages__conversation=conversation))
    return user.has_perm("agentapp.view_run") or not others.exclude(starter=user).exists()


def may_cancel(user: User, run: Run) -> bool:
    return user.is_active and (run.starter_id == user.pk or user.has_perm("agentapp.cancel_run"))


def may_pause(user: User, run: Run) -> bool:
    return user.is_active and (run.starter_id == user.pk or user.has_perm("agentapp.pause_run"))


def may_resume(user: User, run: Run) -> bool:
    """Who may resume a paused run: those who may pause it. If another person paused it, those who may pause any run."""
    return may_pause(user, run) and run.pk not in braked(user, [run])


def braked(user: User, runs: Sequence[Run]) -> dict[uuid.UUID, str]:
    """Those of these runs that somebody else has put aside since they last went on, with the key of that person.

    Nobody's pause holds a person who may pause any run, and the starter's own pause holds nobody. One query at most.
    """
    if user.has_perm("agentapp.pause_run"):
        return {}
    chains = {ledger.run_chain(run.pk): run for run in runs if run.is_aside}
    if not chains:
        return {}
    found: dict[uuid.UUID, str] = {}
    events = Event.objects.filter(chain__in=chains, type__in=[*_PUT_ASIDE, *_GOES_ON]).order_by("seq")
    for chain, kind, actor in events.values_list("chain", "type", "actor"):
        run, (kind_of_actor, _, rest) = chains[chain], actor.partition(":")
        key = rest.partition(":")[0]
        if kind in _GOES_ON:
            found.pop(run.pk, None)
        elif kind_of_actor == "user" and key not in (str(user.pk), str(run.starter_id)):
            found[run.pk] = key
    return found


def who_paused(runs: Sequence[Run]) -> dict[uuid.UUID, str]:
    """The name of the first person to put each of these runs aside since it last went on. Two queries at most."""
    chains = {ledger.run_chain(run.pk): run.pk for run in runs}
    found: dict[uuid.UUID, str] = {}
    events = Event.objects.filter(chain__in=chains, type__in=[*_PUT_ASIDE, *_GOES_ON]).order_by("seq")
    for chain, kind, actor in events.values_list("chain", "type", "actor") if chains else []:
        kind_of_actor, _, rest = actor.partition(":")
        if kind in _GOES_ON:
            found.pop(chains[chain], None)
        elif kind_of_actor == "user":
            found.setdefault(chains[chain], rest.partition(":")[0])
    people = User.objects.in_bulk([int(key) for key in found.values()]) if found else {}
    return {pk: name_of(people[int(key)]) for pk, key in found.items() if int(key) in people}


def has_paused(user: User, run: Run) -> bool:
    """Whether this person has put this run aside itself, not only with another run, since it last went on."""
    about = Event.objects.filter(chain=ledger.run_chain(run.pk), type__in=[*_PUT_ASIDE, *_GOES_ON]).order_by("-seq")
    for event in about:
        if event.type in _GOES_ON:
            return False
        if event.actor_key == f"user:{user.pk}" and "with" not in event.data:
            return True
    return False


def brake(user: User, run: Run, *below: Run) -> str:
    """Why a person may not let this run and those below it go on, if another person has paused one of them."""
    held = braked(user, [run, *below])
    if not held:
        return ""
    other = User.objects.filter(pk=held.get(run.pk) or next(iter(held.values()))).first()
    who = name_of(other) if other is not None else "Somebody else"
    which = "this run" if run.pk in held else "a run that it asked for"
    return f"{who} has paused {which}. Resuming it needs the right to pause runs."


def may_take_over(user: User, run: Run) -> bool:
    """Who may speak in the agent's place: those who may pause the run, or are asked to decide about one of its calls.
    If a person is wanted, anybody who decides about calls. A right that was lent only allows deciding.
    """
    if may_pause(user, run) or _may_answer(user, run):
        return True
    asked = Approval.objects.filter(run_id=run.pk, state__in=Approval.UNDECIDED).prefetch_related("groups")
    return any(decides_themself(user, approval) for approval in asked)


def offers_take_over(user: User, run: Run, asked: bool) -> bool:
    """`may_take_over` for a page that already knows whether this person is `asked` to decide about one of its calls.

    Whoever decides about a call may not always see its run, and takes over only what they see. Only the run that a
    person started speaks with people. The runs it asked for are taken over with it.
    """
    may = may_see(user, run) and (asked or may_pause(user, run) or _may_answer(user, run))
    return run.parent_id is None and run.taken_over_by_id is None and not run.is_mocked and may


def _may_answer(user: User, run: Run) -> bool:
    """Whether a conversation waits for a person, and this is one of those who help customers."""
    wanted = run.conversation is not None and bool(run.conversation.person_wanted)
    return wanted and user.is_active and user.has_perm("approvals.decide_approval")


def may_hand_back(user: User, run: Run) -> bool:
    """Who may let the agent speak again: the person who took over, and anybody who may pause any run.

    A run that another run asked for is handed back with that run.
    """
    may = user.is_active and run.parent_id is None
    return may and (run.taken_over_by_id == user.pk or user.has_perm("agentapp.pause_run"))


def name_of(user: User) -> str:
    """A person's name as everybody reads it."""
    return user.get_full_name() or user.get_username()


def may_raise_budget(user: User, run: Run) -> bool:
    """Who may let a run cost more: not the one who started it, nor who had a hand in it."""
    return user.is_active and user.has_perm("agentapp.raise_budget") and not _is_part_of(user, run)


def may_resolve(user: User, run: Run) -> bool:
    """Who may say what became of an unknown call: not the one who started the run, nor who had a hand in it."""
    return user.is_active and user.has_perm("agentapp.resolve_outcome") and not _is_part_of(user, run)


def _is_part_of(user: User, run: Run) -> bool:
    """Whether a person started a run, took it over, or made the token that another person started it with."""
    return user.pk == run.starter_id or user.pk in run.takers


def may_see_grants(user: User) -> bool:
    """Who may read what people have allowed for a while."""
    return user.is_active and (user.has_perm("approvals.view_grant") or user.has_perm("approvals.add_grant"))


def visible_grants(user: User) -> QuerySet[Grant]:
    """The grants a person may see: all with the right to view them, else their own and those of requests they see."""
    if user.has_perm("approvals.view_grant"):
        return Grant.objects.all()
    if not may_see_grants(user):
        return Grant.objects.none()
    return Grant.objects.filter(Q(made_by=user) | Q(approval__in=visible_approvals(user)))


def may_revoke_grant(user: User, grant: Grant) -> bool:
    """Who may revoke a grant: those who made it, may make grants, or may stop things."""
    return user.is_active and (grant.made_by_id == user.pk or user.has_perm("approvals.add_grant") or may_stop(user))


def may_end_plan(user: User) -> bool:
    """Who may end the rest of a plan they can see: those who decide about requests, or may stop things."""
    return user.is_active and (user.has_perm("approvals.decide_approval") or may_stop(user))


def may_stop(user: User) -> bool:
    """Who may engage and release kill switches, and reset breakers."""
    return user.is_active and user.has_perm("agentapp.engage_killswitch")


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
