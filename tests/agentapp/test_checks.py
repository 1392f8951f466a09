"""Anything unsafe is reported before the product serves."""

import re
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.checks import run_checks
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import connection

from agentapp import checks, doubts
from agentapp.models import Agent, Guideline, Tool, ToolSource
from approvals import append_only
from approvals.models import Channel, Rule

# Checks ask the database what it supports.
pytestmark = pytest.mark.django_db

PAGE = Path(__file__).parents[2] / "docs/hardening.md"
SAFE: dict[str, Any] = {
    "DEBUG": False,
    "SECRET_KEY": "x7" * 25,
    "ALLOW_SCRIPTED_RUNS": False,
    "TOOL_MODULES": ["shop.tools"],
    "SESSION_COOKIE_SECURE": True,
    "CSRF_COOKIE_SECURE": True,
    "ALLOWED_HOSTS": ["countersign.example"],
    "BASE_URL": "https://countersign.example",
    "EMBEDDED": False,
    "LEASE_SECONDS": 12,
    "SWEEP_SECONDS": 15,
}


def ids(databases: list[str] | None = None) -> list[str]:
    found = [str(message.id) for message in run_checks(databases=databases)]
    return sorted(name for name in found if name.startswith("countersign."))


@pytest.fixture
def production(settings: Any) -> Any:
    for name, value in SAFE.items():
        setattr(settings, name, value)
    return settings


@pytest.fixture
def development(settings: Any) -> None:
    settings.DEBUG = True


def on_postgresql() -> bool:
    return connection.vendor == "postgresql"


def test_a_deployment_without_static_files_is_said(production: Any, tmp_path: Path) -> None:
    production.STATIC_ROOT = tmp_path
    assert checks.static_files_are_there()[0].id == "countersign.W006"
    assert "countersign.W006" in {message.id for message in run_checks(include_deployment_checks=True)}
    assert "countersign.W006" not in ids()
    (tmp_path / "console").mkdir()
    assert checks.static_files_are_there() == []


def test_a_safe_production_is_silent(production: Any) -> None:
    assert ids() == ([] if on_postgresql() else ["countersign.E007"])


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        ("SECRET_KEY", "development-only-key-do-not-use-where-it-matters", "countersign.E001"),
        ("SECRET_KEY", "short", "countersign.E001"),
        ("ALLOW_SCRIPTED_RUNS", True, "countersign.E002"),
        ("TOOL_MODULES", ["shop.tools", "agentapp.demo.tools"], "countersign.E003"),
        ("SESSION_COOKIE_SECURE", False, "countersign.E004"),
        ("CSRF_COOKIE_SECURE", False, "countersign.E004"),
        ("ALLOWED_HOSTS", ["*"], "countersign.E005"),
        ("BASE_URL", "http://countersign.example", "countersign.E006"),
        ("EMBEDDED", True, "countersign.W001"),
        ("LEASE_SECONDS", 60, "countersign.W003"),
    ],
)
def test_what_is_unsafe_in_production_is_named(production: Any, setting: str, value: Any, expected: str) -> None:
    setattr(production, setting, value)
    assert expected in ids()
    production.DEBUG = True
    assert ids() == []


def test_sqlite_is_for_one_process_and_never_for_an_installation_with_redis(production: Any) -> None:
    assert ("countersign.E007" in ids()) is not on_postgresql()
    production.EMBEDDED = True
    assert ids() == ["countersign.W001", *([] if on_postgresql() else ["countersign.W002"])]
    production.EMBEDDED, production.DEBUG = False, True
    assert ids() == []


def test_a_database_address_that_was_cut_stops_what_would_have_used_another(production: Any) -> None:
    if on_postgresql():
        call_command("check")
        return
    with pytest.raises(SystemCheckError, match="DATABASE_URL"):
        call_command("check")


def test_every_check_is_on_the_page() -> None:
    ids = re.findall(r'id="countersign\.([EW]\d+)"', Path(checks.__file__).read_text())
    [table] = re.findall(r"^\| Check \|.*\n\|---.*\n((?:\|.*\n)+)", PAGE.read_text(), re.MULTILINE)
    assert sorted(re.findall(r"^\| `countersign\.([EW]\d+)` \|", table, re.MULTILINE)) == sorted(ids)


def test_an_unsafe_production_does_not_start(production: Any) -> None:
    production.ALLOW_SCRIPTED_RUNS = True
    with pytest.raises(SystemCheckError, match="ALLOW_SCRIPTED_RUNS"):
        call_command("check")


@pytest.mark.django_db
def test_a_good_database_is_silent(development: None) -> None:
    Channel.objects.create(name="desk", kind="email", config={"deciders": True})
    Agent.objects.create(name="support")
    assert ids(["default"]) == []


@pytest.mark.django_db
def test_a_ledger_without_its_guard_is_named(development: None) -> None:
    append_only.remove(connection)
    assert ids(["default"]) == ["countersign.E010"]
    append_only.install(connection)
    assert ids(["default"]) == []


@pytest.mark.django_db
def test_rows_that_name_code_that_is_not_there_are_named(development: None) -> None:
    Agent.objects.create(name="support", driver="magic")
    Channel.objects.create(name="loft", kind="pigeon")
    Channel.objects.create(name="desk", kind="email", config={"to": []})
    assert ids(["default"]) == ["countersign.E011", "countersign.E012", "countersign.E013"]


@pytest.mark.django_db
def test_guidance_that_names_code_that_is_not_there_is_named(development: None) -> None:
    source = ToolSource.objects.create(name="shop", location="shop.tools")
    choices = {"account": {"choice_provider": "no.such.choices"}, "amount": {"precedence": 1}}
    Tool.objects.create(name="pay", source=source, version="1", parameters=choices, owner="Payments")
    support = Agent.objects.create(name="support")
    Guideline.objects.create(agent=support, name="vip", matcher="python", python="no.such.matcher")
    Guideline.objects.create(agent=support, name="off", matcher="python", python="no.such.other", enabled=False)
    assert ids(["default"]) == ["countersign.E014", "countersign.E014"]
    found = [str(message.msg) for message in checks.guidance_names_code_that_exists(["default"])]
    assert found[0].startswith("The guideline support/vip is matched by code. no.such.matcher cannot be imported")
    assert found[1].startswith("The tool 'pay' takes its choices of 'account' from code. no.such.choices cannot be")


@pytest.mark.django_db
def test_a_rule_that_never_applies_is_named(development: None) -> None:
    source = ToolSource.objects.create(name="shop", location="shop.tools")
    Tool.objects.create(name="pay", source=source, version="1", owner="Payments")
    Rule.objects.create(name="fine", verdict="deny", tool="pay")
    Rule.objects.create(name="typo", verdict="deny", tool="pya")
    Rule.objects.create(name="lost", verdict="ask", agent="nobody", route="nowhere")
    Rule.objects.create(name="asleep", verdict="ask", tool="pya", active=False)
    assert ids(["default"]) == ["countersign.W010"] * 3


@pytest.mark.django_db
def test_tools_that_leave_doubts_are_named_together(development: None) -> None:
    source = ToolSource.objects.create(name="shop", location="shop.tools")
    for name, owner, more in [
        ("run_sql", "Data", {}),
        ("look_up", "", {}),
        ("pay", "", {}),
        ("exec_off", "", {"enabled": False}),
    ]:
        Tool.objects.create(name=name, source=source, version="1", owner=owner, effect_class="read", **more)
    assert ids(["default"]) == ["countersign.W013"] * 2
    broad, unowned = (str(message.msg) for message in checks.tools_leave_no_doubts(["default"]))
    assert broad == f"Worth a second look: run_sql. {doubts.BROAD}"
    assert unowned == f"Worth a second look: look_up, pay. {doubts.UNOWNED}"


@pytest.mark.django_db
def test_people_whose_names_differ_in_capitals_alone_are_named(development: None) -> None:
    for name in ("sam", "Sam", "samuel"):
        User.objects.create_user(name)
    assert ids(["default"]) == ["countersign.W012"]


@pytest.mark.django_db
def test_mail_that_nobody_would_get_is_named(production: Any) -> None:
    production.MAILERS = {"default": {"BACKEND": "django.core.mail.backends.console.EmailBackend"}}
    Channel.objects.create(name="desk", kind="email", config={"deciders": True})
    assert "countersign.W004" in ids(["default"])
    production.MAILERS = {"default": {"BACKEND": "django.core.mail.backends.smtp.EmailBackend"}}
    assert "countersign.W004" not in ids(["default"])


@pytest.mark.django_db
def test_without_the_database_no_check_reads_it(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        run_checks()


@pytest.mark.django_db(transaction=True)
def test_a_database_without_tables_is_not_an_error_yet(development: None) -> None:
    with connection.schema_editor() as editor:
        editor.execute("ALTER TABLE approvals_channel RENAME TO approvals_channel_elsewhere")
    try:
        assert ids(["default"]) == []
    finally:
        with connection.schema_editor() as editor:
            editor.execute("ALTER TABLE approvals_channel_elsewhere RENAME TO approvals_channel")
