"""A run with its people and workers, driven here: due runs are driven, workers die, people act, time passes."""

import json
import uuid
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.contrib.auth.models import Group, User
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from agentapp import actions, agent_tools, loop
from agentapp.models import Agent, Breaker, Conversation, KillSwitch, Message, Run, Spending, Step, Tool, ToolExecution
from agentapp.sweep import sweep
from agentapp.tools.base import ToolContext
from approvals import configuration
from approvals.models import Approval, Decision, Notification, Rule
from tests.conftest import install_tools, make_user
from tests.sequences import world as the_world

TEAM = ("clerk", "anna", "ben", "cleo")
EXAMPLES_LEAVE = (
    ToolExecution, Step, Message, Run, Conversation, Decision, Notification, Approval.groups.through, Approval,
    KillSwitch, Breaker, Spending, Rule.groups.through, Rule,
)  # fmt: skip

# A deed that affects a tool, a rule or a person picks one of these by number.
TOOLS = tuple(the_world.ARGUMENTS)


class Scene:
    """Made once per test; `begin` resets it for each example."""

    def __init__(self) -> None:
        self.sam = make_user("Sam Operator", "operator", "approver")
        self.dana, self.marco = make_user("Dana Whitfield", "approver"), make_user("Marco Reyes", "approver")
        self.mia, self.ada = make_user("Mia Manager", "manager"), make_user("Ada Admin", "admin")
        self.approvers = Group.objects.get(name="approver")
        rows = install_tools(the_world.__name__)
        for name in TEAM:
            # The end of each example checks what the conversation's next run is told of this one.
            agent = Agent.objects.create(
                name=name, instructions="Be exact.", driver="scripted", subagents=["*"],
                message_compiler=Agent.Compiler.FULL_CONVERSATION,
            )  # fmt: skip
            agent.tools.set(rows.values())
        agent_tools.sync("test")
        self.agents = list(Agent.objects.values())
        self.tools = list(Tool.objects.values())
        self.is_changed = self.somebody_left = False

    def begin(self, agents: dict[str, dict[str, Any]] | None = None, nudges: int = 1) -> None:
        """Forget the previous example; `agents` describes the agents of this one."""
        with transaction.atomic():
            for model in EXAMPLES_LEAVE:
                model._base_manager.all()._raw_delete("default")
            for rows, model in ((self.agents, Agent), (self.tools, Tool)) if self.is_changed else ():
                for row in rows:
                    model.objects.filter(pk=row["id"]).update(**row)
            for name, columns in (agents or {}).items():
                Agent.objects.filter(name=name).update(**columns)
            self.all_are_back()
        self.is_changed = any((agents or {}).values())
        self.world = the_world.begin()
        self.world.meanwhile, self.world.look = self.meanwhile, self.forbidden
        self.nudges, self.rules = nudges, 0
        self.steps_then: dict[uuid.UUID, dict[uuid.UUID, int]] = {}
        self.allowed: set[tuple[str, str]] = set()

    def start(self, script: list[Any] | None = None, before: Sequence[tuple[str, int]] = ()) -> None:
        """A run, after what people did before it."""
        for what, number in before:
            self.do(what, number)
        new = actions.NewRun(agent="clerk", input="Do it.", script=script, conversation="desk")
        self.root = actions.start_run(new, self.sam)

    # --- Workers and time ------------------------------------------------------------------------

    def rest(self) -> None:
        """Drive due runs until none is due and only people can make one due."""
        for _ in range(80):
            due = sweep()
            for run_id in due:
                for _ in range(self.nudges):
                    self.work(run_id)
            if not due and not self.tomorrow():
                return
        raise AssertionError("something is due for ever")

    def work(self, run_id: uuid.UUID) -> None:
        """One nudge. A worker that dies leaves its lease, which expires."""
        try:
            loop.drive(run_id)
        except the_world.WorkerDies:
            self.world.still()
            self.outlive(run_id)
        for switch in KillSwitch.objects.filter(pk__in=self.steps_then) if self.steps_then else ():
            for pk, steps in self._steps_behind(switch.scope, switch.key).items():
                assert steps == self.steps_then[switch.pk].get(pk, 0), "a model was asked behind a switch"

    def _steps_behind(self, scope: str, key: str) -> dict[uuid.UUID, int]:
        """The step counts of the runs that a switch stops before their next step."""
        runs = {"all": Run.objects.all(), "agent": Run.objects.filter(agent__name=key)}.get(scope, Run.objects.none())
        return dict(runs.values_list("pk", "step_count"))

    def outlive(self, run_id: uuid.UUID) -> None:
        past = timezone.now() - timedelta(seconds=1)
        Run.objects.filter(pk=run_id, state=Run.State.RUNNING).update(lease_until=past)

    def tomorrow(self) -> bool:
        """Let pass the time that queued runs wait and that breakers need to cool down. False: no run waited for it."""
        past = timezone.now() - timedelta(hours=1)
        Breaker.objects.filter(state="open").update(opened_at=past)
        Breaker.objects.filter(state="half_open").update(probe_until=past)
        return bool(Run.objects.filter(state=Run.State.QUEUED, wake_at__isnull=False).update(wake_at=past))

    def time_passes(self) -> None:
        """Everything held is now due."""
        past = timezone.now() - timedelta(seconds=1)
        Approval.objects.filter(runs_at__gt=past).update(runs_at=past)
        Run.objects.filter(wake_at__gt=past).update(wake_at=past)

    # --- What tools see and do in the middle of a call --------------------------------------------

    def forbidden(self, name: str, context: ToolContext) -> str:
        """What forbids this write from beginning now."""
        stops = Q(scope="all") | Q(scope="agent", key=context.agent) | Q(scope="tool", key=name)
        if KillSwitch.objects.filter(stops).exists():
            return "a switch stops it"
        if not Tool.objects.get(name=name).enabled:
            return "the tool is disabled"
        if Rule.objects.filter(verdict="deny", tool=name).exists():
            return "a rule forbids it"
        run = Run.objects.select_related("starter").get(pk=context.run_id)
        if run.is_final or not run.starter.is_active:
            return "its run has ended" if run.is_final else "its starter has left"
        return ""

    def meanwhile(self, what: str, context: ToolContext, name: str) -> None:
        """What people and other workers do while a call runs."""
        run_id, number = uuid.UUID(context.run_id), TOOLS.index(name)
        with suppress(actions.Refused):
            if what in the_world.OTHERS:
                if what != "nudged":
                    self.outlive(run_id)
                self.work(run_id)
            elif what == "cancel":
                actions.cancel_run(run_id, self.sam)
            elif what == "pause":
                actions.pause_run(run_id, self.sam)
            else:
                getattr(self, what)(number)

    # --- What people do --------------------------------------------------------------------------

    def do(self, what: str, number: int) -> bool:
        """One deed. A refused deed changes nothing, and that is tested too. False: it was refused."""
        try:
            deed = getattr(self, what, None)
            if deed is not None:
                deed(number)
            elif what in ON_RUNS:
                ON_RUNS[what](self, _chosen(Run.objects.order_by("pk"), number))
            else:
                self.decide(what, _chosen(Approval.objects.filter(state="pending").order_by("pk"), number), number)
        except (actions.Refused, _NothingThere):
            return False
        return True

    def decide(self, what: str, approval: Approval, number: int = 0, user: User | None = None) -> None:
        who = user or (self.marco if number % 3 == 2 else self.dana)
        fields: dict[str, Any] = {"type": what, "message": "A person's words." if what != "approve" else ""}
        if what in ("reject_and_stop", "edit"):
            fields |= {"type": "reject", "stop_run": True} if what != "edit" else _edited(approval, number)
        if what in ("twice", "stale", "by_starter"):
            fields["type"] = "approve"
        version = approval.version - (what == "stale")
        digest = approval.final_digest or approval.action_digest
        new = actions.NewDecision(uuid.uuid4(), version=version, action_digest=digest, **fields)
        taken = actions.decide(approval.pk, new, self.sam if what == "by_starter" else who)
        assert what not in ("stale", "by_starter"), f"{what} was taken"
        if what == "twice":
            assert actions.decide(approval.pk, new, who).repeated
        assert taken.decision.user == who

    def undo(self, number: int) -> None:
        decision = _chosen(Decision.objects.filter(undone_at__isnull=True).order_by("decided_at", "pk"), number)
        actions.undo_decision(decision.approval_id, decision.user)

    def expire(self, number: int) -> None:
        approval = _chosen(Approval.objects.filter(state__in=["pending", "approved"]).order_by("pk"), number)
        past = timezone.now() - timedelta(seconds=1)
        Approval.objects.filter(pk=approval.pk).update(
            **{"expires_at" if approval.state == "pending" else "use_by": past}
        )

    def wait(self, number: int) -> None:
        self.time_passes()

    def resolve(self, number: int, outcome: str = "") -> None:
        unknown = _chosen(ToolExecution.objects.filter(state="outcome_unknown").order_by("pk"), number)
        outcome = outcome or ("retry", "happened", "did_not_happen")[number % 3]
        actions.resolve_outcome(unknown.pk, outcome, "Looked at the books.", self.dana)

    def switch_all(self, number: int) -> None:
        self._engage("all", "")

    def switch_agent(self, number: int) -> None:
        self._engage("agent", TEAM[number % len(TEAM)])

    def switch_tool(self, number: int) -> None:
        self._engage("tool", self._tool(number))

    def _engage(self, scope: str, key: str) -> None:
        switch = actions.engage_switch(scope, key, "Enough.", self.mia)
        self.steps_then[switch.pk] = self._steps_behind(scope, key)

    def release(self, number: int) -> None:
        actions.release_switch(_chosen(KillSwitch.objects.order_by("pk"), number).pk, self.mia)

    def nudge(self, number: int) -> None:
        """A superfluous message: nothing that is not due is claimed."""
        for run in Run.objects.order_by("pk"):
            loop.drive(run.pk)

    def disable(self, number: int) -> None:
        self._configure(Tool.objects.get(name=self._tool(number)), enabled=False)

    def enable(self, number: int) -> None:
        for row in Tool.objects.filter(enabled=False):
            self._configure(row, enabled=True)

    def raise_effect(self, number: int) -> None:
        reads = [*the_world.READS, *(agent_tools.tool_name(name) for name in TEAM[1:])]
        self._configure(Tool.objects.get(name=reads[number % len(reads)]), effect_class="irreversible")

    def deny(self, number: int) -> None:
        self._rule(number, "deny")

    def allow(self, number: int) -> None:
        self._rule(number, "allow")

    def ask_two(self, number: int) -> None:
        self._rule(number, "ask", approvals_needed=2)

    def hold(self, number: int) -> None:
        self._rule(number, "ask", hold_seconds=60, on_expiry="stop")

    def drop_rule(self, number: int) -> None:
        configuration.delete(_chosen(Rule.objects.order_by("name"), number), "test")

    def all_are_back(self) -> None:
        if self.somebody_left:
            User.objects.update(is_active=True)
            self._dana_is_in(self.approvers)
        self.somebody_left = False

    def _dana_is_in(self, *groups: Group) -> None:
        self.dana.groups.set(groups)
        self.dana = User.objects.get(pk=self.dana.pk)  # a user object caches its permissions

    def starter_leaves(self, number: int) -> None:
        self.somebody_left = True
        User.objects.filter(pk=self.sam.pk).update(is_active=False)

    def decider_leaves(self, number: int) -> None:
        self.somebody_left = True
        self._dana_is_in()

    def balance_changes(self, number: int) -> None:
        self.world.balance += 1

    def _tool(self, number: int) -> str:
        """Every second time a tool people are being asked about, if any: a late change would show there."""
        asked = Approval.objects.filter(state="pending", tool__in=TOOLS).order_by("pk").values_list("tool", flat=True)
        return (asked.first() if number % 2 else None) or TOOLS[number % len(TOOLS)]

    def _rule(self, number: int, verdict: str, **more: Any) -> None:
        tool = self._tool(number)
        self.rules += 1
        rule = Rule(name=f"{verdict}-{self.rules}", tool=tool, verdict=verdict, order=self.rules, **more)
        if verdict == "allow":
            self.allowed.add((f"rule:{rule.name}", tool))
        configuration.save(rule, "test")

    def _configure(self, row: Tool, **columns: Any) -> None:
        self.is_changed = True
        for name, value in columns.items():
            setattr(row, name, value)
        configuration.save(row, "test")

    # --- The end ---------------------------------------------------------------------------------

    def finish(self) -> None:
        """Everybody is back, approves and resolves: everything must end. Hanging calls go on at last."""
        self.all_are_back()
        for _ in range(40):
            if not Run.objects.exclude(state__in=Run.FINAL).exists():
                return
            for switch in KillSwitch.objects.all():
                actions.release_switch(switch.pk, self.mia)
            for approval in Approval.objects.filter(state="pending").order_by("pk"):
                for who in (self.dana, self.marco):
                    with suppress(actions.Refused):
                        self.decide("approve", Approval.objects.get(pk=approval.pk), user=who)
            for _ in ToolExecution.objects.filter(state="outcome_unknown", run__state="waiting"):
                with suppress(actions.Refused):
                    self.resolve(0, "happened")
            for run in Run.objects.exclude(state__in=Run.FINAL):
                for act in (ON_RUNS["resume"], ON_RUNS["raise_budget"]):
                    with suppress(actions.Refused):
                        act(self, run)
            self.time_passes()
            self.rest()
        states = list(Run.objects.exclude(state__in=Run.FINAL).values_list("state", "waiting_for"))
        raise AssertionError(f"there is no end to it: {states}")


class _NothingThere(Exception):
    """Nothing exists to which the deed could apply."""


def _chosen(rows: Any, number: int) -> Any:
    found = list(rows)
    if not found:
        raise _NothingThere
    return found[number % len(found)]


def _edited(approval: Approval, number: int) -> dict[str, Any]:
    """Another amount, or another outcome; with an odd number also something that must not be changed."""
    changed: dict[str, Any] = {"how": "well"}
    if approval.tool.startswith("pay"):
        changed |= {"amount": 6 + number} if number % 2 == 0 else {"amount": 6, "account": "eve"}
    arguments = {**approval.arguments, **changed}
    return {"type": "edit", "arguments_text": json.dumps(arguments)}


ON_RUNS: dict[str, Any] = {
    "pause": lambda scene, run: actions.pause_run(run.pk, scene.sam),
    "resume": lambda scene, run: actions.resume_run(run.pk, scene.mia),
    "cancel": lambda scene, run: actions.cancel_run(run.pk, scene.sam),
    "raise_budget": lambda scene, run: actions.raise_budget(run.pk, Decimal(1), scene.mia),
}
