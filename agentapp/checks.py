"""System checks: what would be unsafe in production, and rows that the code cannot handle.

With DEBUG on, the first kind is silent. The second kind reads the database, so it runs with
`manage.py check --database default`, and before every migration.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import pydantic
from django.conf import settings
from django.contrib.auth.models import Group, Permission, User
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import connections
from django.db.models import Count
from django.db.models.functions import Upper

from agentapp import doubts, roles, secret_key
from agentapp.drivers import DRIVERS
from agentapp.guidance import extensions
from agentapp.models import Agent, Guideline, Route, Tool, ToolSource
from approvals import append_only, channels, database_role
from approvals.models import Channel, Event, Rule
from approvals.proof import signing_key

SHORTEST_SECRET_KEY = 32
# The longest that a dead worker may hold a run.
RECOVERY_SECONDS = 30


@register(Tags.security)
def safe_for_production(**kwargs: Any) -> list[CheckMessage]:
    """What would be unsafe in production."""
    return [] if settings.DEBUG else [*_unsafe(), *_doubtful()]


def _unsafe() -> Iterable[CheckMessage]:
    if secret_key.is_published() or len(settings.SECRET_KEY) < SHORTEST_SECRET_KEY:
        yield Error(
            f"SECRET_KEY is the development key, or shorter than {SHORTEST_SECRET_KEY} characters.",
            hint="Anybody who knows it can sign in as anybody. Set SECRET_KEY to a long random text.",
            id="countersign.E001",
        )
    if settings.ALLOW_SCRIPTED_RUNS:
        yield Error(
            "ALLOW_SCRIPTED_RUNS is on: anybody who may start runs can choose what the model says.",
            hint="Set ALLOW_SCRIPTED_RUNS to false.",
            id="countersign.E002",
        )
    if "agentapp.demo.tools" in settings.TOOL_MODULES:
        yield Error(
            "TOOL_MODULES names the demo shop.",
            hint="Set TOOL_MODULES to the modules of your own tools.",
            id="countersign.E003",
        )
    if not (settings.SESSION_COOKIE_SECURE and settings.CSRF_COOKIE_SECURE):
        yield Error(
            "Cookies are sent over plain HTTP, where they can be read in transit.",
            hint="Set SECURE_COOKIES to true and serve HTTPS.",
            id="countersign.E004",
        )
    if "*" in settings.ALLOWED_HOSTS:
        yield Error(
            "ALLOWED_HOSTS contains '*': links can be made to lead to somebody else's host.",
            hint="Set ALLOWED_HOSTS to the host names by which people reach the console.",
            id="countersign.E005",
        )
    if not settings.BASE_URL.startswith("https://"):
        yield Error(
            f"BASE_URL is {settings.BASE_URL}: the links in notifications lead to a page without HTTPS.",
            hint="Set BASE_URL to the https:// address of the console.",
            id="countersign.E006",
        )
    if not settings.EMBEDDED and connections["default"].vendor == "sqlite":
        yield Error(
            "REDIS_URL is set and the database is SQLite, a file that processes elsewhere do not see.",
            hint="Set DATABASE_URL to a PostgreSQL database. If it is set, check that this process receives all of it: "
            "a shell cuts an unquoted value at & or ;.",
            id="countersign.E007",
        )


def _doubtful() -> Iterable[CheckMessage]:
    if settings.EMBEDDED:
        yield Warning(
            "REDIS_URL is not set: the embedded broker reaches only workers in the same process.",
            hint="Set REDIS_URL, unless the web server and the worker are one process.",
            id="countersign.W001",
        )
    if settings.EMBEDDED and connections["default"].vendor == "sqlite":
        yield Warning(
            "DATABASE_URL is not set: SQLite serves only one machine, and one writer at a time.",
            hint="Set DATABASE_URL to a PostgreSQL database, unless this is a small installation.",
            id="countersign.W002",
        )
    if why := signing_key.problem():
        yield Warning(
            f"Nothing vouches for the ledger. {why}",
            hint="Set LEDGER_SIGNING_KEY, or LEDGER_SIGNING_KEY_FILE to a file with the key: see docs/ledger.md.",
            id="countersign.W005",
        )
    if settings.LEASE_SECONDS + settings.SWEEP_SECONDS > RECOVERY_SECONDS:
        yield Warning(
            f"LEASE_SECONDS and SWEEP_SECONDS add up to more than {RECOVERY_SECONDS}: "
            "that is how long a dead worker can hold a run.",
            hint="Lower one of them.",
            id="countersign.W003",
        )


@register(Tags.staticfiles, deploy=True)
def static_files_are_there(**kwargs: Any) -> list[CheckMessage]:
    """A server needs the collected static files. Only checked with --deploy: workers and commands serve nothing."""
    if settings.DEBUG or (settings.STATIC_ROOT / "console").is_dir():
        return []
    return [
        Warning(
            f"STATIC_ROOT holds no static files: pages come without styles and scripts. It is {settings.STATIC_ROOT}.",
            hint="Run manage.py collectstatic, and set STATIC_ROOT to the directory it fills.",
            id="countersign.W006",
        )
    ]


@register(Tags.database)
def ledger_is_guarded(databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """The triggers that keep the ledger append-only are there."""
    return [
        Error(
            f"The database does not guard the ledger: {', '.join(sorted(missing))} is missing.",
            hint="Put the triggers back, as the owner of the tables: manage.py shell -c "
            "'from django.db import connection; from approvals import append_only; append_only.install(connection)'. "
            "Then run manage.py verify_ledger.",
            id="countersign.E010",
        )
        for alias in databases or []
        if _has_tables(alias, Event) and (missing := append_only.missing(connections[alias]))
    ]


@register(Tags.database, deploy=True)
def database_role_is_kept_from_the_ledger(databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """Whoever owns the ledger's tables can drop the triggers. Only with --deploy, since the owner has to migrate."""
    if settings.DEBUG:
        return []
    return [
        Warning(
            f"Nothing that runs should connect to PostgreSQL like this. {why}",
            hint="Let the owner of the tables only migrate, and the processes connect as another role: see "
            "manage.py grant_tables --help.",
            id="countersign.W014",
        )
        for alias in databases or []
        if (why := database_role.unsuited(connections[alias]))
    ]


@register(Tags.database)
def rows_name_code_that_exists(databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """Agents name drivers, channels name kinds, and both must exist."""
    if not _has_tables("default", Agent, Channel) or "default" not in (databases or []):
        return []
    found: list[CheckMessage] = [
        Error(
            f"The agent {name!r} names the driver {driver!r}, which does not exist.",
            hint=f"Known drivers: {', '.join(sorted(DRIVERS))}.",
            id="countersign.E011",
        )
        for name, driver in Agent.objects.values_list("name", "driver")
        if driver not in DRIVERS
    ]
    for channel in Channel.objects.only("name", "kind", "config", "personal"):
        try:
            channels.open_channel(channel)
        except LookupError as error:
            found.append(Error(f"The channel {channel.name!r} cannot be used. {error}", id="countersign.E012"))
        except pydantic.ValidationError as error:
            first = error.errors()[0]["msg"]
            message = f"The channel {channel.name!r} is not set up correctly: {first}."
            found.append(Error(message, id="countersign.E013"))
    return found


@register(Tags.database)
def guidance_names_code_that_exists(databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """Guidelines name matchers and tools name choices. Without that code, runs of agents with guidelines fail."""
    if not _has_tables("default", Guideline, Tool) or "default" not in (databases or []):
        return []
    named = [
        (f"The guideline {row} is matched by code. ", row.python)
        for row in Guideline.objects.filter(enabled=True, matcher=Guideline.Matcher.PYTHON).select_related("agent")
    ]
    named += [
        (f"The tool {name!r} takes its choices of {parameter!r} from code. ", declared["choice_provider"])
        for name, parameters in Tool.objects.filter(missing_since=None).values_list("name", "parameters")
        for parameter, declared in parameters.items()
        if declared.get("choice_provider")
    ]
    return [Error(what + wrong, id="countersign.E014") for what, path in named if (wrong := extensions.problem(path))]


@register(Tags.database)
def mail_is_sent(databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """If a channel sends mail, there must be a mail server. With DEBUG on, the console will do."""
    if settings.DEBUG or "default" not in (databases or []) or not _has_tables("default", Channel):
        return []
    console = settings.MAILERS["default"]["BACKEND"] == "django.core.mail.backends.console.EmailBackend"
    if not console or not Channel.objects.filter(kind="email", active=True).exists():
        return []
    return [
        Warning(
            "A channel sends mail, but mail is only written to the console.",
            hint="Set EMAIL_HOST to a mail server.",
            id="countersign.W004",
        )
    ]


@register(Tags.database)
def rules_name_what_there_is(databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """A rule for something that does not exist never applies, and nobody would notice."""
    if not _has_tables("default", Rule, Tool, Agent, Route) or "default" not in (databases or []):
        return []
    there = {
        "tool": set(Tool.objects.filter(missing_since=None).values_list("name", flat=True)),
        "agent": set(Agent.objects.values_list("name", flat=True)),
        "route": set(Route.objects.values_list("name", flat=True)),
    }
    return [
        Warning(
            f"The rule {rule['name']!r} is for the {word} {rule[word]!r}, which does not exist: it never applies.",
            hint="Correct the rule, or make it inactive.",
            id="countersign.W010",
        )
        for rule in Rule.objects.filter(active=True).values("name", *there)
        for word, names in there.items()
        if rule[word] and rule[word] not in names
    ]


@register(Tags.database)
def roles_are_complete(databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """Groups made before a permission existed lack it, and a refusal does not tell anybody why."""
    if "default" not in (databases or []) or not _has_tables("default", Group, Permission):
        return []
    return [
        Warning(
            f"The group {name!r} lacks rights that it has in a new installation: {', '.join(lacks)}.",
            hint=f"manage.py roles --update {name} adds them. If they were taken away on purpose, ignore this.",
            id="countersign.W011",
        )
        for name, lacks in roles.lacking().items()
    ]


@register(Tags.database)
def names_are_told_apart(databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """Signing in ignores the letter case of names."""
    if "default" not in (databases or []) or not _has_tables("default", User):
        return []
    names = User.objects.annotate(same=Upper("username")).order_by().values("same")
    return [
        Warning(
            f"Several user names differ from {found['same'].lower()!r} only in capitals: none of them can sign in.",
            hint="In the admin, give all but one of them another name.",
            id="countersign.W012",
        )
        for found in names.annotate(many=Count("pk")).filter(many__gt=1).order_by("same")
    ]


@register(Tags.database)
def tools_leave_no_doubts(databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """A read runs without a person, so a tool that may do more than its effect class says is named beforehand."""
    if "default" not in (databases or []) or not _has_tables("default", Tool, ToolSource):
        return []
    named: dict[str, list[str]] = {}
    for tool in Tool.objects.filter(enabled=True, missing_since=None).select_related("source").order_by("name"):
        for doubt in doubts.about(tool):
            named.setdefault(doubt, []).append(tool.name)
    return [
        Warning(
            f"Worth a second look: {', '.join(names)}. {doubt}",
            hint="Set it on the tool's page in the admin.",
            id="countersign.W013",
        )
        for doubt, names in sorted(named.items())
    ]


def _has_tables(alias: str, *models: Any) -> bool:
    """False before the first migration."""
    return {model._meta.db_table for model in models} <= set(connections[alias].introspection.table_names())
