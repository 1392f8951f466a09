"""Several people, runs, groups and changes of the world in any order: the promises hold after every step.

The tools say what happened. The machine itself keeps who was allowed to decide, and does not ask the product.
"""

import uuid
from collections import Counter
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.db import transaction
from django.db.models import Count
from django.utils import timezone
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from agentapp import actions, loop
from agentapp.models import Agent, Run, Tool, ToolExecution
from agentapp.sweep import sweep
from approvals import configuration, delegations, ledger
from approvals import standing as standing_of
from approvals.digest import canonical
from approvals.models import Approval, Decision, Event, PlannedCall, Rule
from tests.conftest import call, calls, install_tools, says
from tests.governance.shop import Allowed, Effect, Now, World
from tests.plans import MODULE, a_plan, made, planned

PEOPLE = ("sam", "dana", "marco", "lena", "olga")
GROUPS = ("Payments", "Managers")
AMOUNTS = (5, 50, 500)
RIGHTS = ("decide_approval", "start_run", "cancel_run", "view_run", "add_grant", "view_approval")
RUNS = 4
STEPS = 10_000

people = st.sampled_from(PEOPLE)
pick = st.integers(0, 7)
decisions = st.sampled_from(["approve"] * 6 + ["edit", "reject", "respond"])


def a_plan_of_two(arguments):
    """A script that plans two refunds and makes both; in between, a refund that asks, while the world moves."""
    first, other, second = (planned("refund", **arguments | {"account": arguments["account"] + of}) for of in "abc")
    then = [calls(made("a", first)), calls(made("b", other)), calls(made("c", second))]
    return [a_plan(first, second), *then, says("done")]


class Governing(RuleBasedStateMachine):
    steps = 0
    """Over all stories."""

    def __init__(self) -> None:
        super().__init__()
        self.story = transaction.atomic()
        self.story.__enter__()
        self.heights: dict[uuid.UUID, int] = {}
        self.effects = 0
        self.hits: Counter[str] = Counter()
        self.run_ids: list[uuid.UUID] = []
        self.standing: dict[uuid.UUID, dict[str, tuple[str, str]]] = {}
        """By request: who has decided what, and whose right they used, as far as it counts."""

    def teardown(self) -> None:
        transaction.set_rollback(True)
        self.story.__exit__(None, None, None)

    # --- The beginning ---------------------------------------------------------------------------

    @initialize()
    def open_the_shop(self):
        may = Permission.objects.filter(codename__in=RIGHTS)
        self.users = {name: User.objects.create(username=name) for name in PEOPLE}
        for user in self.users.values():
            user.user_permissions.set(may)
        self.groups = {name: Group.objects.create(name=name) for name in GROUPS}
        Now.begin(World(groups=dict.fromkeys(GROUPS, frozenset()), active=frozenset(PEOPLE)))
        for name, members in {"Payments": ("sam", "dana", "marco"), "Managers": ("marco", "olga")}.items():
            for member in members:
                self.join(member, name)
        agent = Agent.objects.create(name="clerk", driver="scripted", max_iterations=50)
        self.tools = install_tools("tests.governance.shop")
        Now.change(versions={name: row.version for name, row in self.tools.items()})
        agent.tools.set([*self.tools.values(), *install_tools(MODULE).values()])
        refunds = Rule(
            name="refunds", tool="refund", verdict="ask", risk="medium", hold_seconds=0, grants_allowed=True,
            escalation=[{"after": 3600, "group": "Managers"}],
        )  # fmt: skip
        wires = Rule(
            name="wires", tool="wire", verdict="ask", risk="high", hold_seconds=0,
            thresholds=[{"approve": 2, "deny": 2, "group": "Payments"}, {"approve": 1, "group": "Managers"}],
        )  # fmt: skip
        configuration.save(refunds, "test", {"groups": [self.groups["Payments"]]})
        configuration.save(wires, "test", {"groups": list(self.groups.values())})

    # --- What people and agents do ---------------------------------------------------------------

    @rule(who=people, tool=st.sampled_from(["refund"] * 4 + ["wire"] * 2 + ["plan"]), amount=st.sampled_from(AMOUNTS))
    def start(self, who, tool, amount):
        self.forget_what_has_ended()
        if len(self.run_ids) >= RUNS or who not in Now.world.active:
            return
        arguments = {"account": f"a{len(self.run_ids)}-{len(Now.effects)}", "amount": amount}
        script = a_plan_of_two(arguments) if tool == "plan" else [calls(call("a", tool, **arguments)), says("done")]
        run = actions.start_run(actions.NewRun("clerk", "Do it.", script=script), self.users[who])
        self.run_ids.append(run.pk)
        loop.drive(run.pk)

    @rule(which=pick, first=pick, kinds=st.lists(decisions, min_size=1, max_size=3), drive=st.booleans())
    def those_who_may_decide(self, which, first, kinds, drive):
        for number, kind in enumerate(kinds):
            request = self.one_of(Approval.UNDECIDED, which)
            able = [who for who in PEOPLE if request and self.may_decide(who, "", request)]
            if able:
                self.decide(able[(first + number) % len(able)], request, kind)
        if drive:
            self.workers_come_by()

    @rule(who=people, which=pick, kind=decisions)
    def anybody_decides(self, who, which, kind):
        request = self.one_of(Approval.OPEN, which)
        if request is not None:
            self.decide(who, request, kind)

    def decide(self, who: str, request: Approval, kind: str) -> None:
        words = {"message": "Because."} if kind in ("reject", "respond") else {}
        arguments = {**request.arguments, "amount": 7}
        edited = {"arguments_text": canonical(arguments)} if kind == "edit" else {}
        digest = request.final_digest or request.action_digest
        new = actions.NewDecision(uuid.uuid4(), kind, request.version, digest, **words, **edited)
        try:
            taken = actions.decide(request.pk, new, self.read(who))
        except actions.Refused:
            return
        lender = taken.decision.on_behalf_of.username if taken.decision.on_behalf_of else ""
        assert self.may_decide(who, lender, request), f"{who} should not have decided for {lender or 'themself'}"
        standing = self.standing.setdefault(request.pk, {})
        assert not {who, lender} - {""} & self.spoken(standing), "one right counts once"
        if taken.decision.type == "edit":
            self.forget_approvals(standing)
        standing[who] = (taken.decision.type, lender)

    @rule(who=people, which=pick)
    def undo(self, who, which):
        request = self.one_of((*Approval.OPEN, "rejected", "responded"), which)
        if request is None:
            return
        try:
            actions.undo_decision(request.pk, self.read(who))
        except actions.Refused:
            return
        standing = self.standing[request.pk]
        kind, _ = standing.pop(who)
        request.refresh_from_db(fields=["state"])
        # If others have ended the request, it stays ended, by what they said and nothing else.
        ended_by = {"rejected": "reject", "responded": "respond"}.get(request.state)
        if ended_by is not None:
            assert ended_by in {kind for kind, _ in standing.values()}
        elif kind == "edit":
            self.forget_approvals(standing)

    def ask(self, who, which):
        request = self.one_of(("pending",), which)
        if request is None:
            return
        try:
            actions.ask_agent(request.pk, "Why?", self.read(who))
        except actions.Refused:
            return
        assert any(self.may_decide(who, lender, request) for lender in ("", *PEOPLE))

    def lend(self, lender, deputy, group):
        now = timezone.now()
        scope = delegations.Scope([self.groups[group].pk])
        until = now + timedelta(days=1)
        begun = delegations.begin(self.read(lender), self.read(deputy), now - timedelta(seconds=5), until, scope)
        if not isinstance(begun, standing_of.Refusal):
            assert lender in Now.world.groups[group], "what one does not have one cannot lend"
            Now.change(lent=Now.world.lent | {(lender, deputy, group)})

    def take_back(self, lender):
        for delegation in delegations.lent_by(self.users[lender]):
            assert delegations.end(delegation.pk, self.read(lender))
        Now.change(lent=frozenset(one for one in Now.world.lent if one[0] != lender))

    def allow_ahead(self, who, which, most, hits):
        request = self.one_of(("pending", "approved", "used"), which)
        if request is None:
            return
        rules = {"account": "any", "amount": "at_most"}
        new = actions.NewGrant(rules=rules, most={"amount": str(most)}, days="7", max_hits=hits, reason="Small ones.")
        try:
            grant = actions.make_grant(request.pk, new, self.read(who))
        except actions.Refused:
            return
        assert request.tool == "refund", "what cannot be taken back is under no grant"
        assert self.may_decide(who, "", request)
        allowed = Allowed(who, most, Now.world.versions["refund"], int(hits or 1000))
        Now.change(allowed={**Now.world.allowed, str(grant.pk): allowed})

    def revoke(self, who):
        for grant_id in list(Now.world.allowed):
            try:
                actions.revoke_grant(uuid.UUID(grant_id), "Enough.", self.read(who))
            except actions.Refused:
                continue
            Now.change(allowed={key: one for key, one in Now.world.allowed.items() if key != grant_id})

    def nobody_decides_for_long(self, which):
        request = self.one_of(("pending", "asked"), which)
        if request is None or not request.escalation or request.escalated:
            return
        past = timezone.now() - timedelta(seconds=1)
        steps = [{**step, "at": past.isoformat()} for step in request.escalation]
        Approval.objects.filter(pk=request.pk).update(escalation=steps, escalates_at=past)
        Now.change(widened=Now.world.widened | {str(request.pk)})
        self.workers_come_by()

    @rule()
    def workers_come_by(self):
        for run_id in sweep():
            loop.drive(run_id)

    def cancel(self, which):
        if which == 0 and self.run_ids:
            run = Run.objects.get(pk=self.run_ids[0])
            try:
                actions.cancel_run(run.pk, self.read("olga"))
            except actions.Refused:
                return

    @rule(
        kind=st.sampled_from(["lend", "lend", "take back", "allow", "allow", "revoke", "ask", "cancel"]),
        who=people, other=people, which=pick, group=st.sampled_from(GROUPS),
        most=st.sampled_from([10, 60]), hits=st.sampled_from(["", "1"]),
    )  # fmt: skip
    def people_arrange(self, kind, who, other, which, group, most, hits):
        {
            "lend": lambda: self.lend(who, other, group),
            "take back": lambda: self.take_back(who),
            "allow": lambda: self.allow_ahead(who, which, most, hits),
            "revoke": lambda: self.revoke(who),
            "ask": lambda: self.ask(who, which),
            "cancel": lambda: self.cancel(which),
        }[kind]()

    @rule(
        kind=st.sampled_from(["join", "leave", "switch", "tool", "balance", "late", "late", "over"]),
        who=people, group=st.sampled_from(GROUPS), which=pick, yes=st.sampled_from([True, True, False]),
    )  # fmt: skip
    def the_world_moves(self, kind, who, group, which, yes):
        {
            "join": lambda: self.join(who, group),
            "leave": lambda: self.leave(who, group),
            "switch": lambda: self.switch(who, yes),
            "tool": lambda: self.the_tool_changes("refund" if yes else "wire", which % 3),
            "balance": lambda: self.the_balance_changes(100 if yes else 0),
            "late": lambda: self.nobody_decides_for_long(which),
            "over": lambda: self.time_runs_out(which),
        }[kind]()

    # --- What the world does ---------------------------------------------------------------------

    def time_runs_out(self, which):
        request = self.one_of(("pending", "asked"), which)
        if request is not None:
            Approval.objects.filter(pk=request.pk).update(expires_at=timezone.now() - timedelta(seconds=1))

    def join(self, who, group):
        self.users[who].groups.add(self.groups[group])
        Now.change(groups={**Now.world.groups, group: Now.world.groups[group] | {who}})

    def leave(self, who, group):
        self.users[who].groups.remove(self.groups[group])
        Now.change(groups={**Now.world.groups, group: Now.world.groups[group] - {who}})

    def switch(self, who, active):
        self.users[who].is_active = active
        self.users[who].save(update_fields=["is_active"])
        Now.change(active=Now.world.active | {who} if active else Now.world.active - {who})

    def the_tool_changes(self, tool, version):
        row = Tool.objects.get(name=tool)
        row.version = f"{version:064d}"
        configuration.save(row, "test")
        Now.change(versions={**Now.world.versions, tool: row.version})

    def the_balance_changes(self, balance):
        Now.change(balance=balance)

    def forget_what_has_ended(self):
        ended = set(Run.objects.filter(pk__in=self.run_ids, state__in=Run.FINAL).values_list("pk", flat=True))
        self.run_ids = [pk for pk in self.run_ids if pk not in ended]

    # --- What holds ------------------------------------------------------------------------------

    @invariant()
    def the_promises_hold(self):
        """Checks the runs about which something was written: each transition is an event, each act an effect."""
        Governing.steps += 1
        written = Event.objects.filter(run_id__in=self.run_ids).order_by()
        heights = dict(written.values_list("run_id").annotate(Count("pk")))
        changed = [run_id for run_id, height in heights.items() if self.heights.get(run_id) != height]
        self.heights |= heights
        if len(Now.effects) > self.effects:
            self.every_new_effect_was_allowed_by_people_who_might_and_happened_once()
        if changed:
            self.what_people_did_not_allow_did_not_run(changed)
            self.rows_and_record_agree(changed)
            self.nothing_is_stuck(changed)

    def every_new_effect_was_allowed_by_people_who_might_and_happened_once(self):
        new, self.effects = Now.effects[self.effects :], len(Now.effects)
        assert all(count == 1 for count in Counter(effect.key for effect in Now.effects).values())
        rows = ToolExecution.objects.filter(idempotency_key__in=[effect.key for effect in new])
        done = {execution.idempotency_key: execution for execution in rows.select_related("approval", "grant", "run")}
        for effect in new:
            execution = done[effect.key]
            assert execution.executed_text == canonical(effect.arguments)
            if execution.grant is not None:
                self.hits[str(execution.grant.pk)] += 1
                self.was_allowed_ahead(effect, execution)
            else:
                self.was_approved(effect, execution)

    def was_approved(self, effect: Effect, execution: ToolExecution) -> None:
        """By enough people, who still had the right when it ran, for exactly this, in the world they had seen."""
        listed = PlannedCall.objects.select_related("approval").filter(used_by=execution.pk).first()
        # A planned call that was asked about anyway runs only by what was decided about it alone.
        if listed is not None and execution.approval is None:
            request, call = listed.approval, listed
            assert (request.state, listed.arguments_text) == ("used", execution.executed_text)
        else:
            request, call = execution.approval, execution.approval
            assert request is not None, "no rule allows any of these"
            assert (request.state, request.final_arguments_text) == ("used", execution.executed_text)
        assert call.tool_version == effect.world.versions[effect.tool]
        standing = self.standing[request.pk]
        kinds = ("approve",) if effect.tool == "wire" else ("approve", "edit")
        counting = {who: lender for who, (kind, lender) in standing.items() if kind in kinds}
        assert len({*counting, *counting.values()} - {""}) == len([*counting, *filter(None, counting.values())])
        assert all(self.may_decide(who, lender, request, effect.world) for who, lender in counting.items())
        if effect.tool == "refund":
            assert counting
            assert f'"balance":{effect.world.balance}' in call.snapshot_text
            return
        of = {
            group: [who for who, lender in counting.items() if self.speaks_for(who, lender, group, effect.world)]
            for group in GROUPS
        }
        assert len(of["Payments"]) >= 2 or len(of["Managers"]) >= 1

    def was_allowed_ahead(self, effect: Effect, execution: ToolExecution) -> None:
        """By a grant valid when it ran, covering this much, made by somebody other than the run's starter."""
        grant_id = str(execution.grant.pk)
        allowed = effect.world.allowed[grant_id]
        assert effect.tool == "refund"
        assert effect.arguments["amount"] <= allowed.most
        assert self.hits[grant_id] <= allowed.hits
        assert allowed.version == effect.world.versions["refund"]
        assert allowed.maker in effect.world.active
        assert allowed.maker in effect.world.groups["Payments"]
        assert self.users[allowed.maker].pk != execution.run.starter_id

    def what_people_did_not_allow_did_not_run(self, run_ids):
        done = {effect.key for effect in Now.effects}
        for execution in ToolExecution.objects.filter(run_id__in=run_ids).exclude(name="propose_plan"):
            if execution.reason in ("approval_rejected", "approval_expired") or execution.state == "waiting":
                assert execution.idempotency_key not in done
            if execution.state == "finished" and execution.result_status == "ok" and execution.executed_text:
                assert execution.idempotency_key in done

    def rows_and_record_agree(self, run_ids):
        of = Decision.objects.filter(approval__run_id__in=run_ids, undone_at=None)
        found: dict[uuid.UUID, dict[str, tuple[str, str]]] = {}
        for key, who, kind, lender in of.values_list("approval", "user__username", "type", "on_behalf_of__username"):
            found.setdefault(key, {})[who] = (kind, lender or "")
        for key in Approval.objects.filter(run_id__in=run_ids).values_list("pk", flat=True):
            assert found.get(key, {}) == self.standing.get(key, {})
        for run_id in run_ids:
            assert ledger.verify(ledger.run_chain(run_id))[1] is None

    def nothing_is_stuck(self, run_ids):
        waiting = Run.objects.filter(pk__in=run_ids, state="waiting", waiting_for="approval", wake_at=None)
        open_ = Approval.objects.filter(run_id__in=run_ids, state__in=Approval.OPEN).values_list("run_id", flat=True)
        assert set(waiting.values_list("pk", flat=True)) <= set(open_)

    # --- What the machine knows ------------------------------------------------------------------

    def may_decide(self, who: str, lender: str, request: Approval, world: World | None = None) -> bool:
        """By the groups that its rule names, and by Managers if nobody decided for long."""
        world = world or Now.world
        groups = {"refund": {"Payments"}, "propose_plan": {"Payments"}, "wire": set(GROUPS)}[request.tool]
        if str(request.pk) in world.widened:
            groups = groups | {"Managers"}
        starter = next(name for name, user in self.users.items() if user.pk == request.starter_id)
        if starter in (who, lender):
            return False
        return any(self.speaks_for(who, lender, group, world) for group in groups)

    def speaks_for(self, who: str, lender: str, group: str, world: World) -> bool:
        """Whether somebody decides for a group: as a member, or by a right that a member has delegated to them."""
        if not lender:
            return who in world.active and who in world.groups[group]
        return {who, lender} <= world.active and lender in world.groups[group] and (lender, who, group) in world.lent

    def spoken(self, standing: dict[str, tuple[str, str]]) -> set[str]:
        """Everybody who has had a say."""
        return {*standing, *(lender for _, lender in standing.values() if lender)}

    def forget_approvals(self, standing: dict[str, tuple[str, str]]) -> None:
        """Drop what was said of the call as it was; a rejection stands."""
        for who in [who for who, (kind, _) in standing.items() if kind != "reject"]:
            del standing[who]

    def one_of(self, states, which: int) -> Approval | None:
        found = list(Approval.objects.filter(run_id__in=self.run_ids, state__in=states).order_by("pk"))
        return found[which % len(found)] if found else None

    def read(self, who: str):
        return type(self.users[who]).objects.get(pk=self.users[who].pk)


@pytest.mark.apart
@pytest.mark.django_db
def test_the_promises_hold_whatever_people_agents_and_the_world_do(settings_of_the_shop):
    run_state_machine_as_test(
        Governing,
        settings=settings(
            max_examples=130,
            stateful_step_count=100,
            deadline=None,
            # Report a failing story as it was found: shrinking it takes longer than all the others.
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert Governing.steps >= STEPS


@pytest.fixture
def settings_of_the_shop(settings):
    settings.TOOL_MODULES = ["tests.governance.shop", MODULE]
    settings.UNDO_HOLD_SECONDS = 0
    return settings
