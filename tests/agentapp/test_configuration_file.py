"""The configuration as a file: checked whole, loaded whole or not at all, written back the same."""

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.contrib.auth.models import Group, User
from django.core.management import CommandError, call_command

from agentapp import contracts, tool_sync
from agentapp.configuration_file import ConfigurationRefused, dump, load, loading
from agentapp.configuration_file.loading import MODELS
from agentapp.configuration_file.shape import LINKS, SECTIONS
from agentapp.models import Agent, Route, Tool
from approvals import ledger, rule_versions
from approvals.models import Channel, Event, Rule, RuleVersion

pytestmark = pytest.mark.django_db

FILE = """
groups:
  leads:
    permissions: [approvals.decide_approval, agentapp.view_run]

tools:
  pay_out:
    effect_class: compensable
    timeout_seconds: 20
    locked_fields: [account]
    starters: [leads]
  send_letter:
    enabled: false

agents:
  support:
    description: Answers customers.
    instructions: |
      Be kind.
      Look things up before you act.
    driver: tool_calling
    model: anthropic:claude-sonnet-5
    model_settings: {temperature: 0, max_tokens: 800}
    tools: [look_up_order, pay_out]
    max_cost: 0.25
    routes:
      order_status: {tools: [look_up_order]}
      refunds:
        description: Money back.
        tools: [look_up_order, pay_out]

rules:
  pay-small:
    tool: pay_out
    condition: args.amount <= 10.0
    verdict: allow
  pay-large:
    description: Large payments need two people.
    agent: support
    route: refunds
    tool: pay_out
    condition: args.amount > 100.0
    verdict: ask
    groups: [leads, approver]
    approvals_needed: 2
    expires_seconds: 3600
    allowed_decisions: [approve, reject]
    risk: high
    hold_seconds: 0
    assurance: signed

channels:
  desk:
    kind: email
    config: {to: [desk@example.test]}
    groups: [leads]
    follows_up: false
  people:
    kind: slack
    config: {credential: SLACK}
    personal: true
webhooks:
  ticket-desk:
    url: https://tickets.example.test/in
    events: [approval.requested, run.failed]
    credential: TICKETS
"""


@pytest.fixture(autouse=True)
def _synced_tools(settings: Any) -> None:
    settings.TOOL_MODULES = ["tests.tools_for_tests"]
    tool_sync.sync("test")


def refused(text: str) -> list[str]:
    """Why a file is refused, checking that it wrote nothing."""
    before = dump(), Event.objects.count()
    with pytest.raises(ConfigurationRefused) as caught:
        load(text, "test")
    assert (dump(), Event.objects.count()) == before
    return [str(problem) for problem in caught.value.problems]


def test_a_file_makes_what_it_says() -> None:
    load(FILE, "test")
    agent = Agent.objects.get()
    assert agent.instructions == "Be kind.\nLook things up before you act.\n"
    assert agent.model_settings == {"temperature": 0, "max_tokens": 800}
    assert str(agent.max_cost) == "0.250000"
    assert {route.name: sorted(tool.name for tool in route.tools.all()) for route in agent.routes.all()} == {
        "order_status": ["look_up_order"],
        "refunds": ["look_up_order", "pay_out"],
    }
    tool = Tool.objects.get(name="pay_out")
    assert (tool.effect_class, tool.timeout_seconds, tool.locked_fields) == ("compensable", 20, ["account"])
    assert (tool.max_attempts, tool.owner) == (2, "payments team"), "what the file leaves out stays"
    rule = Rule.objects.get(name="pay-large")
    assert {group.name for group in rule.groups.all()} == {"leads", "approver"}
    assert (rule.approvals_needed, rule.allowed_decisions, rule.hold_seconds) == (2, ["approve", "reject"], 0)
    assert (rule.starter_excluded, rule.assurance) == (True, "signed")
    desk, people = Channel.objects.order_by("name")
    assert (desk.config, desk.follows_up, desk.personal) == ({"to": ["desk@example.test"]}, False, False)
    assert (people.kind, people.follows_up, people.personal) == ("slack", True, True)
    leads = Group.objects.get(name="leads")
    assert set(leads.permissions.values_list("codename", flat=True)) == {"decide_approval", "view_run"}


def test_the_roles_are_there_after_any_load() -> None:
    changes = load("", "test")
    assert {change.name for change in changes} == {"viewer", "approver", "operator", "manager", "admin"}
    assert Group.objects.get(name="approver").permissions.filter(codename="decide_approval").exists()


def test_every_change_is_an_event_with_before_and_after() -> None:
    seen = Event.objects.count()
    changes = load(FILE, "system (load_config shop.yaml)")
    events = list(Event.objects.filter(chain=ledger.CONFIGURATION, seq__gt=seen).order_by("seq"))
    kept = [event for event in events if event.data["table"] == "approvals.RuleVersion"]
    assert len(events) == len(changes) + len(kept)
    assert len(kept) == Rule.objects.count()  # each rule of the file is a version of it
    assert {event.actor for event in events} == {"system (load_config shop.yaml)"}
    [changed] = [event for event in events if event.data["name"] == "pay_out"]
    assert changed.type == "configuration.changed"
    assert changed.data["before"] == {
        "effect_class": "irreversible",
        "timeout_seconds": 12,
        "starters": [],
    }
    assert changed.data["after"] == {"effect_class": "compensable", "timeout_seconds": 20, "starters": ["leads"]}
    assert ledger.verify()[1] is None


def test_each_rule_of_a_file_is_in_force_at_once_as_a_version_loaded_by_whom() -> None:
    load(FILE, "system (load_config shop.yaml)")
    load(FILE.replace("args.amount > 100.0", "args.amount > 50.0"), "user:7:ada (load_config shop.yaml)")
    rule = Rule.objects.get(name="pay-large")
    assert (rule.version, rule.active, rule.condition) == (2, True, "args.amount > 50.0")
    versions = rule.versions.values_list("number", "state", "origin", "activated_by", "why")
    why = "Loaded from a configuration file."
    assert list(versions) == [
        (2, "in_force", "file", "user:7:ada (load_config shop.yaml)", why),
        (1, "retired", "file", "system (load_config shop.yaml)", why),
    ]
    assert rule.versions.get(number=1).terms["condition"] == "args.amount > 100.0"


def test_a_rehearsal_of_a_load_makes_no_version() -> None:
    load(FILE, "test", dry_run=True)
    assert not RuleVersion.objects.exists()


def test_a_file_takes_the_name_of_a_draft_and_nothing_of_what_it_says(ada: User) -> None:
    drafted = Rule(name="pay-large", verdict="deny", order=3, agent="nobody")
    draft = rule_versions.draft_new(drafted, [], ada, "test")
    assert "pay-large" not in dump()
    load(FILE, "test")
    rule = Rule.objects.get(name="pay-large")
    assert (rule.pk, rule.version, rule.active) == (drafted.pk, 1, True)
    assert (rule.order, rule.agent, rule.verdict) == (100, "support", "ask")
    draft.refresh_from_db()
    assert (draft.state, draft.terms["order"]) == ("draft", 3)


def test_a_second_load_changes_nothing_and_writes_no_event() -> None:
    load(FILE, "test")
    seen = Event.objects.count()
    assert load(FILE, "test") == []
    assert Event.objects.count() == seen
    assert set(Rule.objects.values_list("version", flat=True)) == {1}


def test_what_was_dumped_loads_without_a_change() -> None:
    load(FILE, "test")
    text = dump()
    assert load(text, "test") == []
    assert dump() == text


@pytest.mark.parametrize(
    "text",
    [
        "1e5",
        "1:30",
        "no",
        "Null",
        "x\x85y\nz",
        "x\x85y",
        "a\r\nb\r\n",
        " lead\n  b",
        "\n\nx",
        "x\u2028y\nz",
        "\ufeffx\ny",
        "---\n...\n",
        "# no\n",
    ],
)
def test_instructions_come_back_to_the_letter(text: str) -> None:
    load(FILE, "test")
    agent = Agent.objects.all()[0]
    Agent.objects.filter(pk=agent.pk).update(instructions=text)
    dumped = dump()
    assert load(dumped, "test") == []
    Agent.objects.filter(pk=agent.pk).update(instructions="others")
    load(dumped, "test")
    agent.refresh_from_db()
    assert agent.instructions == text


def test_a_country_in_a_schema_is_no_truth_value() -> None:
    load("agents: {clerk: {input_schema: {properties: {to: {enum: [DE, NO]}, on: {}}}}}", "test")
    schema = Agent.objects.get(name="clerk").input_schema
    assert schema == {"properties": {"to": {"enum": ["DE", "NO"]}, "on": {}}}
    assert load(dump(), "test") == []


def test_a_dump_brings_back_what_was_changed_since() -> None:
    load(FILE, "test")
    text = dump()
    Rule.objects.filter(name="pay-large").update(condition="", risk="low", expires_seconds=None)
    Tool.objects.update(enabled=True, effect_class="read")
    Tool.objects.get(name="pay_out").starters.clear()
    Agent.objects.get().tools.clear()
    Route.objects.get(name="refunds").delete()
    Channel.objects.all().delete()
    assert load(text, "test") != []
    assert dump() == text


def test_a_dump_says_every_column_an_entry_may_say() -> None:
    load(FILE, "test")
    dumped = yaml.safe_load(dump())
    for section, shape in SECTIONS.items():
        for entry in dumped[section].values():
            links = set(shape.__annotations__) & LINKS
            assert set(entry) == set(shape.__annotations__) | links


def test_the_file_covers_every_setting_of_its_tables() -> None:
    own = {"id", "name", "version", "agent", "source", "created_at"}
    contract = set(contracts.contract_columns(next(iter(tool_sync.python_source.modules().values()))[0]))
    for section, shape in SECTIONS.items():
        columns = {field.name for field in MODELS[section]._meta.concrete_fields} - own
        assert columns - contract - set(shape.__annotations__) == set(), section


def test_a_tool_that_takes_whatever_it_is_given_may_have_any_name_locked() -> None:
    anything = {"type": "object", "properties": {}, "additionalProperties": True}
    Tool.objects.filter(name="pay_out").update(input_schema=anything)
    load("tools: {pay_out: {locked_fields: [acount]}}", "test")
    load("rules: {a: {verdict: ask, tool: pay_out, condition: 'args.ammount > 3.0'}}", "test")
    assert Tool.objects.get(name="pay_out").locked_fields == ["acount"]


def test_what_a_file_leaves_out_stays_as_it_is() -> None:
    load(FILE, "test")
    [change] = load("rules: {pay-large: {risk: critical}}", "test")
    assert change.after == {"risk": "critical", "version": 2}
    assert Rule.objects.get(name="pay-large").condition == "args.amount > 100.0"
    assert Rule.objects.filter(name="pay-small").exists()


def test_routes_that_an_agent_no_longer_lists_are_removed() -> None:
    load(FILE, "test")
    changes = load("agents: {support: {routes: {refunds: }}}", "test")
    assert [(change.event_type, change.name) for change in changes] == [
        ("configuration.deleted", "support/order_status")
    ]
    assert Route.objects.get().tools.count() == 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("colour: blue", "colour: There is no such section"),
        ("rules: [a, b]", "rules: A section must be a mapping"),
        ("- a", "The file must be a mapping of groups, tools, agents, rules, channels, webhooks."),
        ("rules: {a: {verdict: ask, colour: blue}}", "rules.a.colour: Extra inputs are not permitted"),
        ("rules: {a: {verdict: perhaps}}", "rules.a.verdict: 'perhaps' is not one of allow, ask, deny."),
        ("tools: {pay_out: {starters: [payers]}}", "tools.pay_out.starters.0: There is no group 'payers'."),
        ("rules: {a: {tool: pay_out}}", "rules.a.verdict: This field cannot be blank."),
        ("rules: {a: {verdict: ask, tool: fly}}", "rules.a.tool: There is no tool 'fly'."),
        ("rules: {a: {verdict: ask, agent: nobody}}", "rules.a.agent: There is no agent 'nobody'."),
        ("rules: {a: {verdict: ask, route: nowhere}}", "rules.a.route: There is no route 'nowhere'."),
        ("rules: {a: {verdict: ask, groups: [pilots]}}", "rules.a.groups.0: There is no group 'pilots'."),
        ("rules: {a: {verdict: ask, effect_class: bad}}", "rules.a.effect_class: 'bad' is not one of"),
        (
            "rules: {a: {verdict: deny, tool: pay_out, condition: 'args.ammount > 3.0'}}",
            "rules.a.condition: pay_out has no argument 'ammount'.",
        ),
        (
            "tools: {pay_out: {locked_fields: [acount]}}",
            "tools.pay_out.locked_fields: pay_out has no argument 'acount'; it has ",
        ),
        (
            "tools: {pay_out: {secret_fields: [pinn]}}",
            "tools.pay_out.secret_fields: pay_out has no argument 'pinn'; it has account, amount, pin.",
        ),
        (
            "agents: {a: {driver: scripted, max_cost: -5}}",
            "agents.a.max_cost: Ensure this value is greater than or equal to 0.",
        ),
        ("rules: {a: {verdict: ask, condition: 'args.x >'}}", "rules.a.condition: The condition does not compile"),
        ("rules: {a: {verdict: ask, condition: 'world > 1'}}", "rules.a.condition: Unknown name 'world'"),
        ("rules: {a: {verdict: ask, allowed_decisions: [dance]}}", "rules.a.allowed_decisions: Give a non-empty list"),
        ("rules: {a: {verdict: ask, allowed_decisions: []}}", "rules.a.allowed_decisions: Give a non-empty list"),
        (
            "rules: {a: {verdict: allow}}",
            "rules.a: A rule that allows must name one tool exactly, or cover only reads.",
        ),
        ("rules: {a: {verdict: ask, on_expiry: approve}}", "rules.a.on_expiry: 'approve' is not one of reject, stop."),
        ("rules: {a: {verdict: ask, escalation: [{after: 0, remind: true}]}}", "rules.a.escalation: Step 1: `after`"),
        (
            "rules: {a: {verdict: ask, escalation: [{after: 9, group: pilots}]}}",
            "rules.a.escalation: There is no group",
        ),
        (
            "rules: {a: {verdict: ask, target_seconds: 0}}",
            "rules.a.target_seconds: A target must be at least one second.",
        ),
        ("rules: {a: {verdict: ask, expires_seconds: 1000000000000}}", "rules.a.expires_seconds: At most ten years"),
        ("tools: {pay_out: {timeout_seconds: 1000000000000}}", "tools.pay_out.timeout_seconds: At most one day"),
        (
            "rules: {a: {verdict: ask, approvals_needed: 0}}",
            "rules.a.approvals_needed: At least one person",
        ),
        (
            "rules: {a: {verdict: ask, approvals_needed: '2'}}",
            "rules.a.approvals_needed: Input should be a valid integer",
        ),
        ("rules: {a: {verdict: ask, approvals_needed: -1}}", "rules.a.approvals_needed: Ensure this value is greater"),
        ("rules: {a: {verdict: ask, assurance: finger}}", "rules.a.assurance: 'finger' is not one of"),
        (
            "rules: {a: {verdict: ask, hold_seconds: 61}}",
            "rules.a.hold_seconds: A decision can be held",
        ),
        ("rules: {a: {verdict: ask, active: 1}}", "rules.a.active: Input should be a valid boolean"),
        ("rules: {'a b': {verdict: ask}}", "rules.a b.name: Enter a valid"),
        ("rules: {true: {verdict: ask}}", "rules.True: A name must be text; put it in quotes."),
        ("tools: {fly: {enabled: true}}", "tools.fly: There is no such tool."),
        ("tools: {pay_out: {effect_class: bad}}", "tools.pay_out.effect_class: 'bad' is not one of read,"),
        ("tools: {pay_out: {description: new}}", "tools.pay_out.description: Extra inputs are not permitted"),
        (
            "tools: {pay_out: {timeout_seconds: 0}}",
            "tools.pay_out.timeout_seconds: A tool needs a deadline",
        ),
        ("agents: {a: {driver: magic}}", "agents.a.driver: There is no driver 'magic'."),
        ("agents: {a: {hooks: [no.such.hook]}}", "agents.a.hooks: The hook 'no.such.hook' cannot be imported"),
        ("agents: {a: {hooks: [tests.clerk_hooks.plain]}}", "agents.a.hooks: 'tests.clerk_hooks.plain' is not a hook"),
        ("agents: {a: {subagents: [nobody]}}", "agents.a.subagents: There is no agent 'nobody'."),
        ("agents: {a: {denied_subagents: [b]}}", "agents.a.denied_subagents: There is no agent 'b'."),
        ("agents: {a: {tool_choice: fly}}", "agents.a.tool_choice: 'fly' is neither auto, required, none nor one of"),
        (
            "agents: {a: {tools: [pay_out], tool_choice: look_up_order}}",
            "agents.a.tool_choice: 'look_up_order' is neither auto, required, none nor one of its tools: pay_out.",
        ),
        (
            "agents: {a: {model: 'opanai:gpt-5'}}",
            "agents.a.model: 'opanai:gpt-5' is not a model name. Known forms: openai:…",
        ),
        ("agents: {a: {finish_reasons: [lenght]}}", "agents.a.finish_reasons: 'lenght' is not a finish reason."),
        ("agents: {a: {model_settings: {heat: 1}}}", "agents.a.model_settings: 'heat' is not a model setting."),
        ("agents: {a: {driver_settings: {max_retries: 1}}}", "agents.a.driver_settings: This driver has no settings."),
        (
            "agents: {a: {message_compiler: last_observations, compiler_settings: {observations: -1}}}",
            "agents.a.compiler_settings: observations is a whole number, 0 or more.",
        ),
        (
            "agents: {a: {compiler_settings: {observations: 5}}}",
            "agents.a.compiler_settings: Only the compiler last_observations reads observations; this agent has",
        ),
        ("agents: {a: {tools: [fly]}}", "agents.a.tools.0: There is no tool 'fly'."),
        (
            "agents: {a: {routes: {r: {tools: [pay_out]}}}}",
            "agents.a.routes.r.tools: 'pay_out' is not among the agent's",
        ),
        ("agents: {a: {routes: {'r s': }}}", "agents.a.routes.r s: Enter a valid"),
        ("agents: {a: {model_settings: {since: 2026-01-01}}}", "agents.a.model_settings: The value has no canonical"),
        ("agents: {a: {model_settings: {t: 1e999}}}", "agents.a.model_settings: The value has no canonical"),
        ('agents: {a: {instructions: "a\\0b"}}', "agents.a.instructions: The text holds a NUL character"),
        ("agents: {a: {max_cost: 12345678.0}}", "agents.a.max_cost: Ensure that there are no more than"),
        ("channels: {c: {kind: pigeon}}", "channels.c.kind: There is no channel kind 'pigeon'."),
        ("channels: {c: {config: {}}}", "channels.c.kind: This field cannot be blank."),
        ("agents: {a: {input_schema: {type: objct}}}", "agents.a.input_schema: A run's input is an object"),
        ("agents: {a: {input_schema: {properties: {order: 5}}}}", "agents.a.input_schema: properties is an object of"),
        ('tools: {pay_out: {questions: ["Why?", " "]}}', "tools.pay_out.questions: Give a list of questions"),
        (
            "channels: {c: {kind: email, config: {to: [a@b.example]}, personal: true}}",
            "channels.c.config: a channel of this kind cannot be for individual people",
        ),
        ("channels: {c: {kind: email, config: {to: [x]}}}", "channels.c.config.to: 'x' is not an address"),
        ("groups: {g: {permissions: [fly.high]}}", "groups.g.permissions.0: There is no permission 'fly.high'."),
        ("rules: {a: {verdict: ask, approvals_needed: 1:30}}", "rules.a.approvals_needed: Input should be a valid int"),
        ("tools: {pay_out: {enabled: yes}}", "tools.pay_out.enabled: Input should be a valid boolean"),
        ("tools: {pay_out: {enabled: !!bool maybe}}", "The file is not readable YAML."),
        (f"agents: {{a: {{max_cost: 1{':1' * 9999}.5}}}}", "agents.a.max_cost: Input should be a valid decimal"),
        ("rules: {a: {}, a: {}}", "The key 'a' appears twice"),
        ("rules: {a: !!python/object:os.system {}}", "The file is not readable YAML."),
        ("rules: {a: ", "The file is not readable YAML."),
        ("rules: {a: {tool: {{ tool }}}}", "The file is not readable YAML."),
        ("? [rules]\n: {}", "The file is not readable YAML."),
        ('groups: {"a\\0b": {}}', "'a\\x00b' cannot be stored as a name."),
    ],
)
def test_what_is_wrong_is_named_with_its_place(text: str, problem: str) -> None:
    found = refused(text)
    assert any(problem in line for line in found), found


def test_everything_wrong_is_named_at_once_and_nothing_is_written() -> None:
    text = FILE.replace("args.amount > 100.0", "args.amount >").replace("kind: email", "kind: pigeon")
    text = text.replace("tool: pay_out\n    condition: args.amount <= 10.0", "condition: args.amount <= 10.0")
    paths = [line.split(":")[0] for line in refused(text)]
    assert paths == ["rules.pay-small", "rules.pay-large.condition", "channels.desk.kind"]


@pytest.mark.parametrize("key", ["1.5", "null", "2024-01-01", "true", "7"])
@pytest.mark.parametrize("where", ["guidelines: {%s: {}}", "routes: {%s: {}}", "%s: 2", "routes: {r: {%s: 1}}"])
def test_a_key_that_is_no_text_is_refused_wherever_it_stands(where: str, key: str) -> None:
    assert refused(f"agents: {{a: {{{where % key}}}}}")


EVERY_KIND = """
groups: {g: {permissions: [fly.high], wings: 2}}
tools:
  pay_out: {enabled: 1, locked_fields: [acount], timeout_seconds: 0, nothing: 1}
agents:
  clerk:
    driver: magic
    driver_settings: {max_retries: 2}
    hooks: [no.such.hook]
    model_settings: {heat: 3}
    tool_choice: fly
    tools: [pay_out, fly]
    max_steps: 0
    max_iterations: 0
    max_tokens: 0
    max_seconds: 0
    input_schema: 3
    routes:
      r: {tools: [pay_out, 3], description: 4}
      s: {tools: [look_up]}
    guidelines:
      greet: {criticality: huge, action: Greet., tools: [look_up]}
      part: {condition: At the end, priority: "1", action: "", python: no.such.code}
rules:
  both: {verdict: ask, condition: "args.x >", expires_seconds: -3, hold_seconds: 61, approvals_needed: "2"}
  allows: {verdict: allow, order: x}
  unclear: {verdict: perhaps, groups: [pilots], thresholds: [{approve: 1, group: Pilots}], target_seconds: 0}
channels:
  c: {kind: email, config: {to: [x]}, groups: [pilots], personal: 1}
  d: {kind: pigeon, config: 3, follows_up: 0}
"""


def test_an_entry_that_is_wrong_in_several_ways_is_told_all_of_them() -> None:
    told = refused(EVERY_KIND)
    assert [line.split(": ")[0] for line in told] == [
        "groups.g.permissions.0",
        "groups.g.wings",
        "tools.pay_out.enabled",
        "tools.pay_out.nothing",
        "tools.pay_out.timeout_seconds",
        "tools.pay_out.locked_fields",
        "agents.clerk.driver",
        "agents.clerk.tools.1",
        "agents.clerk.input_schema",
        "agents.clerk.routes.r.description",
        "agents.clerk.routes.r.tools.1",
        "agents.clerk.routes.s.tools.0",
        "agents.clerk.guidelines.greet.criticality",
        "agents.clerk.guidelines.greet.tools.0",
        "agents.clerk.guidelines.part.priority",
        "agents.clerk.model_settings",
        "agents.clerk.hooks",
        "agents.clerk.max_steps",
        "agents.clerk.max_iterations",
        "agents.clerk.max_tokens",
        "agents.clerk.max_seconds",
        "agents.clerk.guidelines.part.python",
        "rules.both.condition",
        "rules.both.approvals_needed",
        "rules.both.expires_seconds",
        "rules.both.hold_seconds",
        "rules.allows.order",
        "rules.allows",
        "rules.unclear.verdict",
        "rules.unclear.groups.0",
        "rules.unclear.target_seconds",
        "channels.c.groups.0",
        "channels.c.personal",
        "channels.c.config.to",
        "channels.d.kind",
        "channels.d.config",
        "channels.d.follows_up",
    ]


def test_an_allowing_rule_cannot_lose_its_tool_in_a_later_file() -> None:
    load(FILE, "test")
    assert "must name one tool exactly" in refused("rules: {pay-small: {tool: ''}}")[0]


def test_what_somebody_changes_while_a_file_is_looked_at_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    load(FILE, "test")
    looked_at = loading.ensure_roles

    def meanwhile() -> list[str]:
        Tool.objects.filter(name="pay_out").update(enabled=False)
        Rule.objects.filter(name="pay-large").update(approvals_needed=3)
        Agent.objects.update(instructions="Stop.")
        return looked_at()

    monkeypatch.setattr(loading, "ensure_roles", meanwhile)
    name = Agent.objects.get().name
    load(
        f"tools: {{pay_out: {{owner: us}}}}\nrules: {{pay-large: {{order: 7}}}}\nagents: {{{name}: {{max_steps: 4}}}}",
        "test",
    )
    tool, rule, agent = Tool.objects.get(name="pay_out"), Rule.objects.get(name="pay-large"), Agent.objects.get()
    assert (tool.enabled, tool.owner) == (False, "us")
    assert (rule.approvals_needed, rule.order) == (3, 7)
    assert (agent.instructions, agent.max_steps) == ("Stop.", 4)


def test_a_dry_run_names_the_difference_and_changes_nothing() -> None:
    before = dump(), Event.objects.count(), Group.objects.count()
    changes = load(FILE, "test", dry_run=True)
    assert (dump(), Event.objects.count(), Group.objects.count()) == before
    assert [change.name for change in changes] == [change.name for change in load(FILE, "test")]


def test_the_commands_load_print_and_dump(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(FILE)
    out = StringIO()
    call_command("load_config", str(file), "--dry-run", stdout=out)
    assert '    effect_class: "irreversible" → "compensable"' in out.getvalue()
    assert "+ approvals.Rule pay-large" in out.getvalue()
    assert "rows would change." in out.getvalue()
    assert not Rule.objects.exists()
    call_command("load_config", str(file), stdout=StringIO())
    dumped = StringIO()
    call_command("dump_config", stdout=dumped)
    file.write_text(dumped.getvalue())
    out = StringIO()
    call_command("load_config", str(file), stdout=out)
    assert out.getvalue() == "0 rows changed.\n"


def test_the_command_says_why_a_file_was_not_loaded(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text("rules: {a: {verdict: allow}}")
    with pytest.raises(CommandError, match=r"nothing has changed\.\n  rules\.a: A rule that allows"):
        call_command("load_config", str(file))
    with pytest.raises(CommandError, match="cannot be read"):
        call_command("load_config", str(tmp_path / "missing.yaml"))
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CommandError, match="cannot be read"):
        call_command("load_config", str(file))


def test_settings_that_an_agents_driver_does_not_know_are_refused() -> None:
    [problem] = refused("agents: {thinker: {driver: react, driver_settings: {retries: 1}}}")
    assert problem.startswith("agents.thinker.driver_settings: retries")
    load("agents: {thinker: {driver: react, driver_settings: {max_retries: 1}}}", "test")
    assert Agent.objects.get(name="thinker").driver_settings == {"max_retries": 1}


def test_an_agent_may_choose_a_tool_it_is_given_and_one_that_asks_another_agent() -> None:
    load("agents: {a: {tools: [pay_out], tool_choice: pay_out}}", "test")
    load("agents: {b: {}, a: {subagents: [b], tool_choice: ask_b}}\ntools: {ask_b: {starters: [approver]}}", "test")
    assert [group.name for group in Tool.objects.get(name="ask_b").starters.all()] == ["approver"]
    assert Agent.objects.get(name="a").tool_choice == "ask_b"


def test_a_file_that_takes_away_the_chosen_tool_is_refused_and_one_about_other_things_is_not() -> None:
    load("agents: {a: {tools: [pay_out], tool_choice: pay_out}}", "test")
    [problem] = refused("agents: {a: {tools: [look_up_order]}}")
    assert problem.startswith("agents.a.tool_choice: 'pay_out' is neither")
    Agent.objects.update(tool_choice="gone since")
    load("agents: {a: {description: Still here.}}", "test")


def test_every_agent_may_be_denied() -> None:
    load("agents: {a: {denied_subagents: ['*']}}", "test")
    assert Agent.objects.get(name="a").denied_subagents == ["*"]


def test_times_and_steps_of_a_rule_come_back_as_they_were(roles):
    text = """rules:
      slow:
        verdict: ask
        target_seconds: 300
        business_hours: true
        escalation:
        - {after: 600, group: "", remind: true}
        - {after: 1800, group: manager, remind: false}
    """
    load(text, "test")
    stored = Rule.objects.get()
    assert (stored.target_seconds, stored.business_hours, len(stored.escalation)) == (300, True, 2)
    assert load(dump(), "test") == []
