"""Everything the demo needs in the database, added where it is missing."""

import uuid
from io import StringIO
from pathlib import Path

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from django.urls import reverse

from agentapp import actions, continuity, customer_links, customers
from agentapp.demo import data
from agentapp.demo.accounts import join_teams, make_accounts
from agentapp.demo.guided_scenarios import TAKE_BACK, TAKE_OVER
from agentapp.demo.scenarios import AT_START, Scenario
from agentapp.models import Agent, Run
from approvals import append_only, configuration, ledger, rule_terms, rule_versions
from approvals.models import Rule, RuleVersion

CONFIGURATION_FILE = Path(__file__).with_name("config.yaml")
EVALS = Path(__file__).with_name("evals")
VARIANT_FILE = Path(__file__).with_name("variant.yaml")


def open_shop(model: str = "", driver: str = "") -> dict[str, User]:
    """Tables, tools, agent, rules, people and the shop's data. Safe to repeat: what exists stays.

    `model` is the model that the agent runs on, such as openai:<model>, and `driver` its driver; empty leaves either
    unchanged. Returns the people by name.
    """
    call_command("migrate", verbosity=0, interactive=False)
    call_command("sync_tools", stdout=StringIO())
    people = make_accounts()
    if not Agent.objects.filter(name="support").exists():
        call_command("load_config", str(CONFIGURATION_FILE), stdout=StringIO())
        join_teams(people)
        _draft_a_rule(people["ada"])
    if model or driver:
        agent = Agent.objects.get(name="support")
        agent.model, agent.driver = model or agent.model, driver or agent.driver
        configuration.save(agent, "system:demo")
    data.load_shop()
    return people


def _draft_a_rule(admin: User) -> None:
    """A draft change to a rule, ready to be simulated on its page. It watches meanwhile and decides nothing."""
    rule, actor = Rule.objects.get(name="refunds-never-above-2000"), ledger.actor_of(admin, "demo")
    words = "Refunds above $200.00 are made by the payments team itself, never by an agent."
    changed = {"condition": "args.amount > 200.0", "description": words}
    draft = rule_versions.keep_draft(rule, {**rule_terms.terms_of(rule), **changed}, admin, actor)
    if isinstance(draft, RuleVersion):
        rule_versions.watch(draft.pk, draft.terms_digest, True, actor)


def start_opening_runs(starter: User) -> list[Run]:
    """Start the scripted runs, so that the inbox is not empty. Does nothing while one of them is open."""
    if Run.objects.filter(starter=starter, metadata__has_key="scenario").exclude(state__in=Run.FINAL).exists():
        return []
    return [start(scenario, starter) for scenario in AT_START]


def start_opening_chats(starter: User) -> str:
    """Start dialogues of the concierge: one whose customer is asked to confirm, one that waits for a person.

    Returns the path of the first customer's page.
    """
    for dialogue in (TAKE_OVER, TAKE_BACK):
        key = f"chat-{uuid.uuid4().hex[:6]}"
        conversation, _ = customers.open_conversation("concierge", key, dialogue.customer, starter, "demo")
        [turn] = dialogue.turns
        new = actions.NewRun(
            agent="concierge",
            input=turn.says,
            customer=dialogue.customer,
            conversation=key,
            metadata={"scenario": dialogue.name},
            script=turn.script,
        )
        actions.start_run(new, starter)
    link = customers.make_link(customers.Access(conversation, starter, "demo"), hours=24)
    return reverse("customer_talk", args=[customer_links.signed(link)])


def start(scenario: Scenario, starter: User) -> Run:
    """Start a run that plays one scenario."""
    new = actions.NewRun(
        agent=scenario.agent,
        input=scenario.input,
        route=scenario.route,
        customer=scenario.customer,
        conversation=scenario.conversation,
        metadata={"scenario": scenario.name},
        script=scenario.script,
    )
    return actions.start_run(new, starter)


def agent_model() -> str:
    """What the demo's agent runs on, as provider:model."""
    return Agent.objects.values_list("model", flat=True).get(name="support")


def empty_everything() -> None:
    """Empty every table, the ledger's too. For throw-away data only."""
    call_command("migrate", verbosity=0, interactive=False)
    append_only.remove(connection)
    try:
        call_command("flush", verbosity=0, interactive=False)
    finally:
        append_only.install(connection)
    continuity.begin()
    # What was noted about a ledger that is gone would be compared with the next one.
    settings.LEDGER.anchor_file.unlink(missing_ok=True)
