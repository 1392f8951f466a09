"""The documentation is true: links lead somewhere, snippets run, names exist."""

import json
import os
import re
import subprocess
import sys
import tomllib
import types
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.apps import apps
from django.core.management import get_commands

from agentapp import health, hooks, observe
from agentapp.configuration_file.shape import (
    AgentEntry,
    ChannelEntry,
    GroupEntry,
    GuidelineEntry,
    RuleEntry,
    ToolEntry,
    VariableEntry,
    WebhookEntry,
)
from agentapp.drivers import DRIVERS
from agentapp.drivers.guided import SETTINGS_SCHEMA as GUIDED_SETTINGS
from agentapp.drivers.react import SETTINGS_SCHEMA
from agentapp.drivers.react_decision import read_decision
from agentapp.guidance.guidelines import Guidelines
from agentapp.guidance.known import Context, Known, Turn
from agentapp.guidance.planner import PlannedCall
from agentapp.llm.providers import PROVIDERS
from agentapp.messages import ToolResult, ToolSpec, UserMessage
from agentapp.models import Agent
from agentapp.roles import ROLES
from agentapp.script import check_script
from agentapp.tools import python_source, sentences
from agentapp.tools.base import Options, OutcomeUnknown, Tool, ToolContext, ToolError
from agentapp.tools.schema import check_arguments
from tests.conftest import call, calls, says
from tests.embedded import with_tables

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
README = (ROOT / "README.md").read_text()
ARCHITECTURE = (ROOT / "docs/architecture.md").read_text()
# Settings of Django, uvicorn and Celery are not ours to check.
MANAGE = re.compile(r"manage\.py ([a-z_]+)")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def section(page: Path, heading: str) -> str:
    """The part of a page under a heading, up to the next heading of its level or above."""
    level = heading.index(" ")
    [found] = re.findall(
        rf"^{re.escape(heading)}\n(.*?)(?=^#{{1,{level}}} |\Z)", page.read_text(), re.MULTILINE | re.DOTALL
    )
    return found


def rows(text: str) -> list[list[str]]:
    """The cells of each row of the tables in a text, heads included. A pipe in code or after a backslash is text."""
    marked = re.sub(r"`[^`\n]*`", lambda code: code[0].replace("|", "\0"), FENCE.sub("", text)).replace("\\|", "\0")
    lines = [line.strip() for line in marked.splitlines()]
    return [[cell.strip().replace("\0", "|") for cell in line[1:-1].split("|")] for line in lines if line[:1] == "|"]


def snippets(page: Path, language: str) -> list[str]:
    return [text for kind, text in FENCE.findall(page.read_text()) if kind == language]


def context(key: str) -> ToolContext:
    return ToolContext(
        run_id="run",
        step=1,
        call_id="call",
        agent="support",
        conversation_id="",
        customer="",
        actor="user:1:sam",
        route="",
        idempotency_key=key,
        deadline=datetime.now(UTC),
    )


@pytest.fixture(scope="module")
def tools_page() -> dict[str, Any]:
    """Everything docs/tools.md defines, its snippets run in order as one module."""
    source = "\n".join(snippets(ROOT / "docs/tools.md", "python"))
    module: dict[str, Any] = {"__name__": "docs_tools"}
    exec(compile(source, "docs/tools.md", "exec", dont_inherit=True), module)
    return module


@pytest.fixture(scope="module")
def drivers_page() -> dict[str, Any]:
    """Everything docs/drivers.md defines, its snippets run in order as one module."""
    source = "\n".join(snippets(ROOT / "docs/drivers.md", "python"))
    module: dict[str, Any] = {"__name__": "docs_drivers"}
    exec(compile(source, "docs/drivers.md", "exec", dont_inherit=True), module)
    return module


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file(page):
    inside = FENCE.sub("", page.read_text())
    links = [link for link in LINK.findall(inside) if "://" not in link and not link.startswith("#")]
    missing = [link for link in links if not (page.parent / link.partition("#")[0]).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_that_is_named_exists(page):
    unknown = {name for name in MANAGE.findall(page.read_text()) if name not in get_commands()}
    assert not unknown


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_make_target_that_is_named_exists(page):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(), re.MULTILINE)) <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_row_of_a_table_has_as_many_cells_as_its_head(page):
    tables = re.findall(r"(?:^\|.*\n?)+", FENCE.sub("", page.read_text()), re.MULTILINE)
    assert not [row for table in map(rows, tables) for row in table if len(row) != len(table[0])]


def test_the_tool_of_the_readme_works():
    module: dict[str, Any] = {"__name__": "readme"}
    [source] = snippets(ROOT / "README.md", "python")
    exec(compile(source, "README.md", "exec", dont_inherit=True), module)
    tool = module["cancel_subscription"]
    assert tool.run({"subscription": "SUB-1042", "month": "2026-12"}, context("k")).data["key"] == "k"
    with pytest.raises(ToolError, match="SUB-1042"):
        tool.run({"subscription": "1042", "month": "2026-12"}, context("k"))


def test_the_readme_and_its_configuration_name_tools_that_exist():
    [source] = snippets(ROOT / "README.md", "yaml")
    for rule in yaml.safe_load(source)["rules"].values():
        assert python_source.get(rule["tool"]) is not None


def test_the_tools_of_the_tools_page_are_sound(tools_page):
    tools = {name: value for name, value in tools_page.items() if isinstance(value, Tool)}
    assert set(tools) == {
        "get_invoice", "write_off", "tag_invoice", "look_up_debtor", "balance_sheet", "scan", "ArchiveInvoice",
        "export", "remind", "ask", "pay_back", "complaint_status",
    }  # fmt: skip
    for tool in tools.values():
        texts = [tool.title, tool.sentence, tool.button, tool.confirm]
        texts += [text for line in tool.effects for text in (line.title, line.detail)]
        assert not [text for text in texts if sentences.check_template(text, set(tool.input_schema["properties"]))]


def test_the_tools_of_the_tools_page_do_what_it_says(tools_page):
    write_off = tools_page["write_off"]
    arguments = {"number": "INV-1042", "amount": 20.0, "reason": "came_late"}
    assert write_off.run(arguments, context("k")).data["made_before"] is False
    assert write_off.run(arguments, context("k")).data["made_before"] is True
    assert write_off.snapshot_of(arguments)["customer"] == "Ana Pereira"
    with pytest.raises(ToolError, match=r"120\.00"):
        write_off.run({**arguments, "amount": 500.0}, context("k"))
    assert tools_page["remind"].run({"number": "INV-1042"}, context("k")).data == {"reminded": "INV-1042"}
    assert tools_page["ArchiveInvoice"].run({"number": "INV-1042"}, context("k")).data == {"archived": "INV-1042"}


def test_the_shapes_of_the_tools_page_do_what_it_says(tools_page, monkeypatch):
    export, ask, tag = tools_page["export"], tools_page["ask"], tools_page["tag_invoice"]
    assert (export.name, ask.name) == ("export_invoices", "ask_bookkeeper")
    assert export.run({"first": "2026-01"}, context("k")).data == "/srv/books/2026-01+1.csv"
    assert "Examples of arguments" in export.description
    assert ask.run({"question": "When?"}, context("k")).data == "I will look into it: When?"
    monkeypatch.setenv("BOOKS_API_KEY", "x")
    assert set(tag.input_schema["properties"]) == {"number", "tag"}
    assert tag.run({"number": "INV-1", "tag": "late"}, context("k")).data == "user:1:sam tagged INV-1 with late"


def test_the_results_of_the_tools_page_are_what_it_says(tools_page):
    sheet = tools_page["balance_sheet"].run({"year": 2026}, context("k"))
    assert (sheet.data, sheet.artifact) == ("2026: 120.00", [{"account": "cash", "sum": 120.0}])
    scan = tools_page["scan"].run({"number": "INV-1"}, context("k"))
    assert (scan.data, scan.artifact) == ("One page, signed.", {"file": "scans/INV-1.pdf"})
    worded = tools_page["look_up_debtor"].run({"name": "Ana"}, context("k"))
    assert (worded.status, worded.message) == ("fatal_error", "The register is closed; try again tomorrow.")


def test_the_errors_of_the_tools_page_are_the_ones_it_describes(tools_page):
    charge = tools_page["charge"]
    with pytest.raises(ToolError) as refused:
        charge("INV-0")
    assert not refused.value.retryable
    with pytest.raises(ToolError) as later:
        charge("INV-1")
    assert later.value.retry_after == 60
    with pytest.raises(OutcomeUnknown):
        charge("INV-2")


def test_the_driver_of_the_drivers_page_passes_its_own_tests(drivers_page):
    tests = [name for name in drivers_page if name.startswith("test_")]
    assert tests == ["test_the_small_model_calls", "test_the_agents_model_answers"]
    for name in tests:
        drivers_page[name]()
    driver = drivers_page["TwoModelsDriver"]
    assert driver.check_settings({"small_model": "openai:gpt-4o-mini"}) == []
    assert len(driver.check_settings({})) == 1


def test_the_guidance_code_of_the_drivers_page_does_what_it_says(drivers_page):
    turn = Turn("run", 1, {"name": "a"}, (), Guidelines(), Known(customer="vip-7"))
    assert drivers_page["is_vip"](Context.of(turn)) == (True, "The customer is vip-7.")
    calls = [PlannedCall("1", "refund", {}), PlannedCall("2", "get_order", {})]
    assert drivers_page["LooksUpFirst"]().on_tools_inferred(Context.of(turn), calls) == calls[1:]


def test_the_guided_script_of_the_drivers_page_is_one():
    [script] = snippets(ROOT / "docs/drivers.md", "json")
    check_script(json.loads(script), is_guided=True)


@pytest.mark.parametrize(
    ("key", "shape", "names"),
    [
        ("guidelines", GuidelineEntry, ["order-first", "refund", "chat"]),
        ("variables", VariableEntry, ["open-orders"]),
    ],
)
def test_what_the_configuration_page_shows_of_an_agent_is_shaped_as_a_file_has_it(key, shape, names):
    page = ROOT / "docs/configuration.md"
    [shown] = [text for text in snippets(page, "yaml") if f"    {key}:" in text]
    entries = yaml.safe_load(shown)["agents"]["support"][key]
    assert list(entries) == names
    assert {name for entry in entries.values() for name in entry} <= set(shape.__annotations__)


@pytest.mark.parametrize(
    ("heading", "entry"),
    [
        ("### groups", GroupEntry),
        ("### tools", ToolEntry),
        ("### agents", AgentEntry),
        ("#### Guidelines", GuidelineEntry),
        ("#### Context variables", VariableEntry),
        ("### rules", RuleEntry),
        ("### channels", ChannelEntry),
        ("### webhooks", WebhookEntry),
    ],
)
def test_the_configuration_page_has_a_row_for_every_key(heading, entry):
    own = section(ROOT / "docs/configuration.md", heading).partition("\n####")[0]
    listed = [key for cells in rows(own) for key in re.findall(r"`(\w+)`", cells[0])]
    assert sorted(listed) == sorted(entry.__annotations__)


def test_the_drivers_page_knows_every_driver_and_every_setting_of_react(drivers_page):
    page = (ROOT / "docs/drivers.md").read_text()
    names = [*DRIVERS, *SETTINGS_SCHEMA["properties"], *GUIDED_SETTINGS["properties"]]
    assert not [name for name in names if f"| `{name}` |" not in page]


def test_the_decisions_of_the_drivers_page_are_read_as_it_says():
    page = (ROOT / "docs/drivers.md").read_text()
    shown = [line.strip() for line in page.splitlines() if line.startswith('    {"thought"')]
    tool = ToolSpec("get_invoice", "", {"type": "object", "properties": {"number": {"type": "string"}}})
    assert [read_decision(text, (tool,), "auto").type for text in shown] == ["call_tool", "final_answer"]


@pytest.fixture
def hooks_page(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Everything docs/hooks.md defines, as a module that agents can name."""
    source = "\n".join(snippets(ROOT / "docs/hooks.md", "python"))
    module = types.ModuleType("docs_hooks")
    monkeypatch.setitem(sys.modules, "docs_hooks", module)
    exec(compile(source, "docs/hooks.md", "exec", dont_inherit=True), vars(module))
    return module


def test_the_hooks_of_the_hooks_page_can_be_loaded(hooks_page):
    found = [name for name, value in vars(hooks_page).items() if isinstance(value, hooks.Hook)]
    assert len(found) == 7
    assert hooks.check([f"docs_hooks.{name}" for name in [*found, "Audit"]]) == []


def test_the_hooks_of_the_hooks_page_do_what_it_says(hooks_page):
    run = hooks.RunFacts(id=str(uuid.uuid4()), agent="support", state="running", customer="C-666")

    def before(name: str, **arguments: Any) -> hooks.BeforeToolUse:
        return hooks.BeforeToolUse(
            run=run, step=1, call_id="a", name=name, arguments=arguments, arguments_text=json.dumps(arguments)
        )

    assert hooks_page.no_bulk_mail(before("send_mail", to=["a"])) is None
    assert hooks_page.no_bulk_mail(before("send_mail", to=["a"] * 13)).blocked
    assert hooks_page.cap_vouchers(before("send_voucher", amount=500)).arguments == {"amount": 10}
    assert hooks_page.known_rates(before("exchange_rate", currency="EUR")).result.data == 1.08
    after = hooks.AfterToolUse(
        run=run, step=1, call_id="a", name="x", arguments={}, result=ToolResult(data="card 4111")
    )
    assert hooks_page.hide_cards(after).result.data == "card ****"
    with pytest.raises(hooks.StopRun, match="account is closed"):
        hooks_page.closed_accounts(hooks.BeforeExecution(run=run))


def test_the_hooks_of_the_hooks_page_work_in_a_run(hooks_page, clerk):
    names = ("Audit", "ask_for_the_order", "say_what_is_missing", "hide_cards", "no_bulk_mail")
    Agent.objects.update(hooks=[f"docs_hooks.{name}" for name in names], hook_contract="strict")
    sent = []
    end = observe.on_event("inference.started", lambda event: sent.append(event.data["request"].messages[-1]))
    run = clerk.run(
        calls(call("a", "look_up", what="x")), says("It is on its way."), says("Your order 7 is on its way.")
    )
    end()
    assert run.answer == "Your order 7 is on its way."
    assert sent[-1] == UserMessage("Name the number of the order.")
    assert not observe.is_watched()


def test_the_hooks_page_lists_the_points_with_what_each_may_change():
    page = (ROOT / "docs/hooks.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| ?([^|]*)\|$", page, re.MULTILINE)
    listed = {point: set(re.findall(r"`(\w+)`", fields)) for point, fields in rows}
    assert listed == {name: set(point.mutable) - {"shared"} for name, point in hooks.POINTS.items()}
    assert [name for name, point in hooks.POINTS.items() if not point.mutable] == [
        "on_stop", "after_execution", "on_error",
    ]  # fmt: skip


def variables(*modules: str) -> set[str]:
    """The environment variables that these modules read, and those of model providers."""
    source = "\n".join((ROOT / module).read_text() for module in modules)
    of_models = {name for one in PROVIDERS.values() for name in (*one.key_variables, one.url_variable)}
    return of_models | set(re.findall(r'env(?:_bool|_count(?:_from_one)?|_list|_folder)?\(\s*"([A-Z_]+)"', source))


def test_the_operating_page_lists_every_setting():
    page = (ROOT / "docs/operating.md").read_text()
    assert not sorted(name for name in variables("agentapp/settings.py") if f"`{name}`" not in page)


def test_the_settings_page_lists_every_variable():
    page = (ROOT / "docs/settings.md").read_text()
    read = variables("agentapp/settings.py", "agentapp/environment.py")
    assert not sorted(name for name in read if f"`{name}`" not in page)


def test_the_settings_page_names_what_cannot_be_zero():
    source = "".join((ROOT / "agentapp" / file).read_text() for file in ("settings.py", "environment.py"))
    [named] = re.findall(r"^A zero is refused .*?\((.*?)\)", (ROOT / "docs/settings.md").read_text(), re.M | re.S)
    assert sorted(re.findall(r"`(\w+)`", named)) == sorted(re.findall(r'env_count_from_one\("(\w+)"', source))


def test_the_operating_page_has_a_row_for_everything_that_can_be_wrong():
    codes = set(re.findall(r'\bProblem\(\s*"(\w+)"', Path(health.__file__).read_text()))
    listed = rows(section(ROOT / "docs/operating.md", "### Problem codes"))
    assert sorted(cells[0].strip("`") for cells in listed[2:]) == sorted(codes)


def test_the_operating_page_says_what_each_role_may_do():
    listed = rows(section(ROOT / "docs/operating.md", "### What roles may do"))
    said = {name: cells[2] for cells in listed for name in re.findall(r"`(\w+\.\w+)`", cells[0])}
    of = {name: [role for role in ROLES if name in ROLES[role]] for name in {*said}.union(*ROLES.values())}
    words = {name: "all five" if len(of[name]) == len(ROLES) else ", ".join(of[name]) or "none" for name in of}
    assert said == {name: words[name] for name in said}
    # For configured tables, one row covers the four rights that Django makes.
    assert not [n for n in words if n not in said and not re.search(r"\.(add|change|delete|view)_", n)]


def test_the_tools_page_names_every_option():
    page = (ROOT / "docs/tools.md").read_text()
    assert not [name for name in Options.__annotations__ if not re.search(rf"`{name}`|\b{name}=", page)]


def architecture(heading: str) -> str:
    """The section of docs/architecture.md under this heading."""
    [section] = re.findall(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", ARCHITECTURE, re.MULTILINE | re.DOTALL)
    return section


@pytest.mark.parametrize("app", ["agentapp", "approvals"])
def test_the_architecture_page_has_every_module_in_its_tree_once(app):
    [tree] = re.findall(r"^```\n(.*?)^```", architecture("The tree"), re.MULTILINE | re.DOTALL)
    [below] = re.findall(rf"^{app}/\n(.*?)(?=^\w|\Z)", tree, re.MULTILINE | re.DOTALL)
    # A name after a slash is deeper in the tree, and a name before a slash is elsewhere.
    named = re.findall(r"(?<![\w/.])(\w+(?:\.py|/))(?![\w/])", below)
    there = [f"{place.name}/" if place.is_dir() else place.name for place in (ROOT / app).iterdir()]
    assert sorted(named) == sorted(set(there) - {"__init__.py", "__pycache__/"})


def test_the_architecture_page_has_the_layers_that_are_checked():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    [layers] = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    [block] = re.findall(r"^```\n(.*?)^```", architecture("Who imports whom"), re.MULTILINE | re.DOTALL)
    *shown, note = block.splitlines()
    assert shown == [layer.replace(" | ", " · ") for layer in layers]
    assert "approvals imports nothing of these" in note


def test_the_architecture_page_says_who_writes_each_table():
    rows = re.findall(r"^\| ([^|]+) \| (.+) \|$", architecture("Who writes which table"), re.MULTILINE)
    named = [name for tables, _ in rows for name in tables.split(", ") if re.fullmatch(r"[A-Z]\w+", name)]
    # One row, without names, covers what the demo adds.
    ours = [model.__name__ for app in ("agentapp", "approvals") for model in apps.get_app_config(app).get_models()]
    assert sorted(named) == sorted(["Table", *ours])
    writers = [place for _, said in rows for place in re.findall(r"`((?:agentapp|approvals)/[\w/.]+)`", said)]
    assert not [place for place in writers if not (ROOT / place).exists()]


# Names the architecture page writes in the same way that are neither functions nor files.
EVENT_TYPES = {
    "signin.succeeded", "signin.failed", "signin.renewed", "signin.factor_added", "signin.factor_removed",
    "signin.sessions_ended", "signin.reset_asked", "tool_call.late_answer",
}  # fmt: skip
MODEL_FIELDS = {"ApiToken.issued_by", "Approval.kind", "Question.proposed_text", "Run.took_back_nothing", "Run.undoes"}


def modules() -> dict[str, str]:
    """The source of each of our modules by its bare name; for a package, that of all its files."""
    sources: dict[str, str] = {}
    for app in ("agentapp", "approvals"):
        for place in (ROOT / app).rglob("*.py"):
            for name in {place.stem, *(folder.name for folder in place.relative_to(ROOT).parents)}:
                sources[name] = sources.get(name, "") + "\n" + place.read_text()
    return sources


def test_the_architecture_page_names_functions_that_exist():
    sources = modules()
    named = set(re.findall(r"`(\w+\.(?!py`|toml`)\w+)`", ARCHITECTURE))
    assert named >= EVENT_TYPES | MODEL_FIELDS
    missing = []
    for name in named - EVENT_TYPES - MODEL_FIELDS:
        module, _, function = name.partition(".")
        if not re.search(rf"^(?:(?:def|class) {function}\b|{function}\b.*=)", sources.get(module, ""), re.MULTILINE):
            missing.append(name)
    assert not missing


def test_the_architecture_page_names_fields_that_exist():
    tables = {model.__name__: model for model in apps.get_models()}
    for table, field in (name.split(".") for name in MODEL_FIELDS):
        assert tables[table]._meta.get_field(field)


def readme_commands(holding: str) -> str:
    """The block of the README that contains these words."""
    [block] = [text for text in snippets(ROOT / "README.md", "sh") if holding in text]
    return block


def in_a_shell(commands: str, folder: Path) -> str:
    """What they print in a shell with no variables set."""
    plain = {"PATH": os.environ["PATH"], "HOME": str(folder), "DATA_DIR": str(folder)}
    done = subprocess.run(
        ["bash", "-euc", commands], cwd=ROOT, env=plain, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_commands_of_the_readme_lead_to_an_installation_on_one_machine(tmp_path: Path) -> None:
    commands = readme_commands("./manage.py serve")
    for left_out in ("make setup && ", " && ./manage.py serve"):
        assert left_out in commands
        commands = commands.replace(left_out, "")
    in_a_shell(commands, tmp_path)
    assert (tmp_path / "db.sqlite3").stat().st_size


def test_the_run_that_the_readme_starts_is_one_that_the_demo_can_play() -> None:
    [body] = re.findall(r"-d '(\{\"agent\".*?\})'", readme_commands("create_token"), re.DOTALL)
    script = json.loads(body)["script"]
    check_script(script)
    [proposed] = [call for reply in script for call in reply.get("tool_calls", [])]
    tool = python_source.get(proposed["name"])
    assert tool is not None
    assert check_arguments(tool.input_schema, proposed["arguments"]) == []


def test_the_commands_of_the_readme_make_tokens_beside_the_demo(tmp_path: Path) -> None:
    in_a_shell("DEBUG=true .venv/bin/python manage.py demo --no-serve", with_tables(tmp_path))
    commands = readme_commands("create_token").partition("curl")[0]
    shop, desk = in_a_shell(f"{commands}\necho $SHOP $DESK", tmp_path).split()
    assert shop.startswith("cs_")
    assert desk.startswith("cs_")
