"""The Cost tab: what models and tools cost by day, compared with the agents' limits. From figures, without queries."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal

from agentapp.console import charts, formats
from agentapp.console.insights_links import on, rows, within
from agentapp.console.insights_parts import (
    DASH,
    MOST_BARS,
    Card,
    Figure,
    Key,
    Table,
    Topic,
    counted,
    day_name,
    money,
    percent,
    plural,
    share,
)
from agentapp.insights import adding
from agentapp.insights.periods import Period
from agentapp.insights.reading import Costs

OUTSIDE = "outside of steps"


@dataclass(frozen=True)
class Limits:
    """What all agents together may cost in a day, and how many have no limit."""

    total: Decimal
    unlimited: int
    agents: int

    @property
    def holds(self) -> bool:
        """Whether every agent has a limit."""
        return bool(self.agents) and not self.unlimited


def whole_days(period: Period) -> Period:
    """A period extended back to the start of its first UTC day, since limits count by UTC days."""
    return replace(period, begin=period.begin.astimezone(UTC).replace(hour=0))


def topic(found: Costs, limits: Limits, spent: Decimal, now: datetime) -> Topic:
    """`spent` is today's cost; the period need not include today."""
    words = within(found.period)
    return Topic(
        figures(found, limits, spent, now),
        [
            by_day(found, limits),
            _by("by-agent", "Cost by agent", "Agent", found.by_agent, found.total,
                [rows(did="thought", agent=agent, **words) for agent, _ in _dearest(found.by_agent)], hue="gray"),
            _by_model(found, words),
            _by("by-tool-cost", "Cost by tool", "Tool", found.by_tool, found.total,
                [rows(did=("ran", "failed"), tool=tool, **words) for tool, _ in _dearest(found.by_tool)], hue="tool"),
        ],
    )  # fmt: skip


def figures(found: Costs, limits: Limits, spent: Decimal, now: datetime) -> list[Figure]:
    today, words = now.astimezone(UTC).date(), within(found.period)
    models = sum(found.by_model.values(), Decimal(0))
    about = f"{percent(adding.share(spent, limits.total))} of {formats.money(limits.total)}" if limits.holds else ""
    known = "" if not found.unpriced else f", {found.unpriced:,} unpriced"
    return [
        Figure("Cost today", formats.money(spent), about or "no limit for all agents",
               href=rows(did=("thought", "ran", "failed"), **on(today))),
        Figure(f"Cost, {found.period.words}", formats.money(found.total),
               f"{formats.money(found.total / len(found.period.days))} a day",
               href=rows(did=("thought", "ran", "failed"), **words)),
        Figure("Before", formats.money(found.before), _compared(found.total, found.before)),
        Figure("Models", formats.money(models), f"{plural(sum(found.replies.values()), 'reply', 'replies')}{known}",
               href=rows(did="thought", **words)),
        Figure("Tools", formats.money(found.total - models), "as their settings declare",
               href=rows(did=("ran", "failed"), **words)),
        Figure("Daily limit", formats.money(limits.total) if limits.holds else DASH,
               plural(limits.agents, "agent") if limits.holds else "",
               why="" if limits.holds else _no_limit(limits)),
    ]  # fmt: skip


def _compared(now: Decimal, before: Decimal) -> str:
    more = adding.share(now - before, before)
    return "as long before" if more is None else f"{'+' if more > 0 else ''}{100 * more:.0f}% since"


def _no_limit(limits: Limits) -> str:
    return "No agent" if not limits.agents else f"{limits.unlimited} of {plural(limits.agents, 'agent')} have none"


def by_day(found: Costs, limits: Limits) -> Card:
    days = found.period.days
    models, tools = ([float(costs[day]) for day in days] for costs in (found.models_by_day, found.tools_by_day))
    totals = [found.on(day) for day in days]
    limit = float(limits.total) if limits.holds else None
    scale = charts.amounts(max([*map(float, totals), limit or 0, 0.04]), lambda value: f"${value:,.2f}")
    peak = max(range(len(days)), key=totals.__getitem__)
    legend = [Key("Models", "model"), Key("Tools", "tool")]
    if limits.holds:
        legend.append(Key(f"Daily limit {formats.money(limits.total)}", "bad", "limit"))
    return Card(
        "cost-by-day", "Cost by day",
        Table(
            ("Day, by UTC", "Models", "Tools", "Together"),
            [(day.isoformat(), money(Decimal(found.models_by_day[day])), money(Decimal(found.tools_by_day[day])),
              money(found.on(day))) for day in days],
            [rows(did=("thought", "ran", "failed"), **on(day)) for day in days],
        ),
        note="days by UTC, as limits count them",
        sentence=f"Cost by day. Highest on {day_name(days[peak])} with {formats.money(totals[peak])}; "
        f"{formats.money(totals[-1])} on the last.",
        columns=charts.columns(
            [day_name(day) for day in days], (("model", models), ("tool", tools)), scale,
            [f"{day_name(day)}: {formats.money(total)}" for day, total in zip(days, totals, strict=True)],
            [rows(did=("thought", "ran", "failed"), **on(day)) for day in days], limit,
        ),
        legend=legend, empty="" if found.total else "Nothing has cost anything in this time.",
        about="" if limits.holds else f"No line for a limit: {_no_limit(limits).lower()}.",
    )  # fmt: skip


def _dearest(costs: Counter[str]) -> list[tuple[str, Decimal]]:
    found = [(name, Decimal(cost)) for name, cost in costs.items() if cost]
    return sorted(found, key=lambda one: (-one[1], one[0]))


def _by(
    slug: str, title: str, head: str, costs: Counter[str], total: Decimal, links: Sequence[str], *, hue: str
) -> Card:
    found = _dearest(costs)
    most = float(found[0][1]) if found else 0.0
    return Card(
        slug, title, wide=False,
        table=Table((head, "Cost", "Share"),
              [(name, money(cost), share(adding.share(cost, total))) for name, cost in found], links),
        bars=[
            charts.bar(name, ((hue, float(cost)),), most,
                       f"{formats.money(cost)}, {percent(adding.share(cost, total))}", formats.money(cost), href=link)
            for (name, cost), link in list(zip(found, links, strict=True))[:MOST_BARS]
        ],
        empty="Nothing has cost anything in this time.",
    )  # fmt: skip


def _by_model(found: Costs, words: dict[str, str]) -> Card:
    names = sorted(found.replies, key=lambda name: (-found.by_model[name], name))
    most = max((float(found.by_model[name]) for name in names), default=0.0)
    link = rows(did="thought", **words)
    return Card(
        "by-model", "Cost by model",
        table=Table(("Model", "Cost", "Replies", "Tokens"),
              [(name or OUTSIDE, money(Decimal(found.by_model[name])), counted(found.replies[name]),
                counted(found.tokens[name])) for name in names],
              [link for _ in names]),
        bars=[
            charts.bar(name or OUTSIDE, (("model", float(found.by_model[name])),), most,
                       f"{formats.money(found.by_model[name])}, {plural(found.replies[name], 'reply', 'replies')}",
                       formats.money(found.by_model[name]), href=link)
            for name in names[:MOST_BARS]
        ],
        empty="No model was asked in this time.",
        about="Outside of steps: answers to people's questions, second looks, and replies that did not become a step."
        if "" in found.replies else "",
    )  # fmt: skip
