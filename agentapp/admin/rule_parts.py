"""What a rule's page shows next to its fields: the rule in words, names for its condition, a call it is tried on."""

from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.forms import ModelForm
from django.utils import timezone

from agentapp.models import Tool
from agentapp.tools import sample
from agentapp.tools.arguments import unknown_in
from approvals import conditions, moments, policy, thresholds, totals
from approvals.digest import canonical
from approvals.escalation import groups_named
from approvals.models import Rule
from approvals.rule_words import in_words


@dataclass(frozen=True)
class Name:
    """One thing a condition can look at."""

    name: str
    meaning: str


_ALWAYS = (
    Name("tool.name", "the tool's name"),
    Name("tool.effect_class", "read, reversible, compensable or irreversible"),
    Name("agent.name", "the agent that proposes the call"),
    Name("agent.route", "its route; empty if it has none"),
    Name("run.title", "the run's title"),
    Name("run.step", "how many steps the run has taken, for example run.step > 5"),
    Name("run.metadata", 'what the program that started the run gave, for example run.metadata["channel"] == "email"'),
    Name("run.id", "the run's id"),
    Name("customer", 'the customer it is about, for example customer == "40117"'),
    Name("environment", 'the name of this installation, for example environment == "production"'),
    Name("now.hour", "the hour by the installation's clock, 0 to 23"),
    Name("now.weekday", 'mon to sun, for example now.weekday in ["sat", "sun"]'),
    Name("now.date", 'the day, for example now.date >= "2026-12-24"'),
    Name("now.is_business_hours", "whether people are at work, according to BUSINESS_HOURS"),
    Name(
        "history.count('tool', '24h')",
        "how often a tool was called; add 'customer', 'agent' or 'run' to count for that one only",
    ),
    Name("history.sum('tool.argument', '24h')", "the total of an argument, for example … + args.amount > 500.0"),
    Name("history.first_time('tool.argument')", "whether no call that took effect had this value in that argument"),
)
THRESHOLDS_HELP = (
    'Ways to decide it, instead of one number: [{"approve": 2, "deny": 1, "group": "Payments"}, '
    '{"approve": 1, "group": "Managers", "condition": "args.amount < 1000.0"}]. The first that is reached approves, '
    "the first whose rejections are reached rejects. Each group must be among the groups above; without one everybody "
    "who may decide counts. A condition can use reviewer (name, groups), args, tool, run and customer."
)


def assurance_help() -> str:
    """What the assurance field means here, with the least that the installation asks for."""
    least = ", ".join(f"{name} {level}" for name, level in settings.STEP_UP.items())
    return (
        "How people who approve show who they are. Signed: their passkey signs the decision itself. The strictest of "
        "the rules that ask counts; critical needs at least a sign-in. "
        + (f"The minimum here: {least} (STEP_UP)." if least else "No other minimum is set here (STEP_UP).")
    )


_KINDS = {
    "string": "text",
    "number": "number; compare it with one such as 100.0",
    "integer": "whole number",
    "boolean": "true or false",
    "array": "list",
    "object": "object",
}


def environment_help() -> str:
    name = settings.ENVIRONMENT
    here = f"This one is {name}." if name else "This one has no name: rules that name an environment do nothing here."
    return f"Only where the installation has this name. Empty means everywhere. {here}"


def check_thresholds(form: ModelForm) -> None:
    """Report what is wrong with a rule's thresholds next to their field."""
    if "thresholds" not in form.cleaned_data:
        return
    form.cleaned_data["thresholds"] = form.cleaned_data["thresholds"] or []  # nothing typed is none
    try:
        thresholds.validate(form.cleaned_data["thresholds"])
        groups = [group.name for group in form.cleaned_data.get("groups", [])]
        thresholds.validate_groups(form.cleaned_data["thresholds"], groups)
        steps = form.cleaned_data.get("escalation") or []
        thresholds.validate_steps(form.cleaned_data["thresholds"], groups_named(steps))
    except ValidationError as error:
        form.add_error("thresholds", error)


def names_for(tool: Tool | None) -> list[Name]:
    """The names a condition can use, starting with the arguments of the rule's tool."""
    if tool is None:
        return [Name("args", "the call's arguments, by name, as in args.amount"), *_ALWAYS]
    found = tool.input_schema.get("properties", {})
    return [*(Name(f"args.{name}", _meaning(described)) for name, described in found.items()), *_ALWAYS]


def meaning(rule: Rule, groups: list[str]) -> dict[str, Any]:
    """Everything the page says about a rule as it stands, saved or not."""
    tool = Tool.objects.filter(name=rule.tool).first() if rule.tool else None
    context: dict[str, Any] = {
        "words": in_words(rule, groups, settings.APPROVAL_EXPIRES_SECONDS),
        "names": names_for(tool),
        "tool": tool,
        "inactive": not rule.active,
    }
    if not rule.condition.strip():
        return context
    try:
        policy.validate_condition(rule.condition)
    except ValidationError as error:
        return context | {"problem": error.messages[0]}
    return context | {"unknown": unknown_in(rule.condition, tool) if tool is not None else []} | _tried(rule, tool)


def unfit(rule: Rule) -> str:
    """Why a condition that compiles can hardly ever be evaluated, as when it compares text and number. Empty: it can.

    What is missing from a made-up call may be there in others.
    """
    tool = Tool.objects.filter(name=rule.tool).first() if rule.tool else None
    if not rule.condition.strip():
        return ""
    if tool is not None and (unknown := unknown_in(rule.condition, tool)):
        return f"The tool {tool.name} has no argument {', '.join(unknown)}, so the condition cannot be evaluated"
    tried = _tried(rule, tool)
    if not isinstance(tried.get("error"), TypeError):
        return ""
    example = f" for an example with {tried['example']}" if tried["example"] else ""
    return f"The condition cannot be evaluated{example} ({tried['fails']})"


def _tried(rule: Rule, tool: Tool | None) -> dict[str, Any]:
    """What the condition says about one made-up call, which finds text and numbers that cannot be compared.

    A condition that looks at nothing in a call says the same about every call.
    """
    if tool is None:
        return _of_itself(rule.condition)
    arguments = sample.arguments(tool.input_schema)
    call = policy.Call(
        tool=tool.name,
        effect_class=tool.effect_class,
        arguments=arguments,
        agent=rule.agent,
        route=rule.route,
        run={"id": "", "title": "", "step": 1, "metadata": {}},
        now=moments.seen(timezone.now(), settings.BUSINESS_HOURS),
        environment=settings.ENVIRONMENT,
        # As if nothing had been called yet.
        history=totals.NothingBefore(),
    )
    tried: dict[str, Any] = {"example": canonical(arguments)}
    try:
        return tried | {"holds": policy.holds(rule.condition, call)}
    except Exception as error:  # a condition can fail in any way its author did not foresee
        return tried | _failed(error)


def _of_itself(condition: str) -> dict[str, Any]:
    try:
        if not conditions.names_in(condition):
            conditions.is_true(condition, {})
    except Exception as error:
        return {"example": "", **_failed(error)}
    return {}


def _failed(error: Exception) -> dict[str, Any]:
    """What went wrong, as far as it helps the author of the condition."""
    if str(error).startswith("No such overload"):
        why = "it combines different types, such as a number and text"
    else:
        why = str(error) if isinstance(error, TypeError) else f"{type(error).__name__}: {error}"
    return {"error": error, "fails": why}


def _meaning(described: Any) -> str:
    if not isinstance(described, dict):
        return ""
    if described.get("enum"):
        return "one of " + ", ".join(map(str, described["enum"]))
    return _KINDS.get(str(described.get("type")), "")
