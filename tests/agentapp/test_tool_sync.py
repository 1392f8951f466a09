"""Contracts come from code; safety belongs to admins; a changed contract voids requests about the old one."""

import dataclasses
import sys
import uuid
from decimal import Decimal
from io import StringIO
from types import ModuleType
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import models
from django.utils import timezone

from agentapp import configuration_file, contracts, executions, runs, tool_sync
from agentapp.messages import Reply, ToolCall
from agentapp.models import Agent, Run, Tool, ToolExecution, ToolSource
from agentapp.roles import ensure_roles
from agentapp.tools import base, python_source
from approvals import cards, decisions, ledger
from approvals.models import Approval, Event
from tests.rows import take

MODULE = "tests.tools_for_tests"
pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _module_of_tools(settings: Any) -> None:
    settings.TOOL_MODULES = [MODULE]


@pytest.fixture
def changing_module(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module whose tools a test replaces, as a new release would."""
    name = "tools_of_a_release"

    def release(**tools: base.Tool) -> None:
        module = ModuleType(name)
        vars(module).update(tools)
        monkeypatch.setitem(sys.modules, name, module)
        python_source._tools_of.cache_clear()
        settings.TOOL_MODULES = [name]

    yield release
    python_source._tools_of.cache_clear()


def pay(description: str = "Pay.", effect: Any = "irreversible") -> base.Tool:
    def pay_out(amount: float) -> str:
        return str(amount)

    return base.tool(description=description, effect=effect)(pay_out)


def sync() -> tool_sync.Synced:
    return tool_sync.sync("test")


def test_what_a_tool_says_of_its_parameters_is_part_of_its_contract(changing_module: Any) -> None:
    plain = pay()
    declared = dataclasses.replace(plain, parameters={"amount": {"precedence": 1}}, overlap="none")
    assert declared.version != plain.version
    changing_module(pay_out=declared)
    sync()
    row = Tool.objects.get(name="pay_out")
    assert (row.parameters, row.overlap, row.version) == ({"amount": {"precedence": 1}}, "none", declared.version)


def configuration_events() -> list[Event]:
    return list(Event.objects.filter(chain=ledger.CONFIGURATION).order_by("seq"))


def waiting_run(tool: Tool, state: str = "waiting") -> tuple[Run, ToolExecution, Approval]:
    """A run that waits for a decision about one call of this tool."""
    now = timezone.now()
    with ledger.transaction():
        agent, _ = Agent.objects.get_or_create(name="payer")
        start = runs.Start(agent=agent, agent_snapshot={}, input="pay", title="pay", starter=None)
        run = runs.create(start)
    claimed = runs.claim(run.pk)
    assert claimed is not None
    assert claimed.lease_token is not None
    call = ToolCall("call_1", tool.name, '{"amount":5}')
    with ledger.transaction():
        step = runs.record_step(claimed, claimed.lease_token, Reply(tool_calls=(call,)), [tool.name], now, now)
        assert step is not None
        proposal = executions.Proposal(call, tool, {"amount": 5}, '{"amount":5}', asks=True)
        [execution] = executions.propose(claimed, step, [proposal])
        card = cards.Card(
            run_id=run.pk,
            execution_id=execution.pk,
            agent="payer",
            tool=tool.name,
            tool_version=tool.version,
            effect_class=tool.effect_class,
            arguments_text='{"amount":5}',
            title="Pay",
            sentence=[],
            effects=[],
            reason="No rule allows this call.",
            expires_seconds=3600,
            hold_seconds=0,
        )
        approvals = decisions.request([card], now)
        executions.hold([execution], approvals)
        if state == "waiting":
            runs.park(claimed, claimed.lease_token, Run.WaitingFor.APPROVAL)
    return run, execution, approvals[0]


def test_a_sync_writes_the_contract_and_the_declared_safety_of_new_tools() -> None:
    sync()
    tool = Tool.objects.get(name="pay_out")
    assert tool.source.location == MODULE
    assert tool.description == "Pay money out."
    assert set(tool.input_schema["properties"]) == {"account", "amount", "pin"}
    assert tool.title_template == "Pay {amount:money} to {account}"
    assert tool.effects_template == [
        {"title": "{amount:money} leaves", "detail": "Cannot be taken back.", "icon": "zap"}
    ]
    assert tool.takes_snapshot is True
    assert tool.version == python_source.get("pay_out").version  # type: ignore[union-attr]
    assert tool.effect_class == tool.declared_effect_class == "irreversible"
    assert (tool.timeout_seconds, tool.max_attempts, tool.idempotency) == (12, 2, "key")
    assert (tool.locked_fields, tool.secret_fields, tool.owner) == (["account"], ["pin"], "payments team")


def test_a_tool_that_does_not_say_what_it_does_is_taken_to_do_the_worst() -> None:
    sync()
    tool = Tool.objects.get(name="send_letter")
    assert tool.declared_effect_class == ""
    assert tool.effect_class == "irreversible"


def test_each_row_is_an_event_and_a_second_sync_changes_nothing() -> None:
    changes = sync().changes
    assert [event.type for event in configuration_events()] == ["configuration.created"] * 4
    assert {change.name for change in changes} == {"look_up_order", "pay_out", "send_letter", "tests-tools_for_tests"}
    assert sync().changes == []
    assert len(configuration_events()) == 4
    assert ledger.verify()[1] is None


def test_what_an_admin_set_is_never_touched(changing_module: Any) -> None:
    changing_module(pay_out=pay("Pay."))
    sync()
    set_by_admin = {
        "enabled": False,
        "effect_class": "reversible",
        "approval_mode": "always",
        "timeout_seconds": 99,
        "max_attempts": 7,
        "idempotency": "key",
        "repeatable": True,
        "trust": "trusted_system",
        "locked_fields": ["amount"],
        "secret_fields": ["amount"],
        "owner": "Ada",
    }
    Tool.objects.update(**set_by_admin)
    changing_module(pay_out=pay("Pay at once."))
    [change] = sync().changes
    tool = Tool.objects.get()
    assert tool.description == "Pay at once."
    assert {name: getattr(tool, name) for name in set_by_admin} == set_by_admin
    assert change.before is not None
    assert change.after is not None
    assert change.before["description"] == "Pay."
    assert set(change.after) == {"description", "version"}


def test_a_tool_set_weaker_than_its_code_declares_is_warned_about() -> None:
    assert sync().warnings == []
    Tool.objects.filter(name="pay_out").update(effect_class="read")
    assert sync().warnings == ["pay_out is declared irreversible in code, but set to read."]


def test_a_tool_its_module_no_longer_lists_goes_missing_and_can_return(changing_module: Any) -> None:
    changing_module(pay_out=pay())
    sync()
    changing_module()
    [change] = sync().changes
    assert Tool.objects.get().missing_since is not None
    assert change.after is not None
    assert set(change.after) == {"missing_since"}
    assert sync().changes == []
    changing_module(pay_out=pay())
    assert len(sync().changes) == 1
    assert Tool.objects.get().missing_since is None


def test_tools_of_a_module_that_is_no_longer_named_go_missing(settings: Any) -> None:
    sync()
    settings.TOOL_MODULES = []
    assert len(sync().changes) == 3
    assert not Tool.objects.filter(missing_since=None).exists()
    assert ToolSource.objects.count() == 1


def test_a_changed_contract_voids_what_waits_and_wakes_its_run(
    changing_module: Any, django_capture_on_commit_callbacks: Any
) -> None:
    changing_module(pay_out=pay("Pay."))
    sync()
    run, execution, approval = waiting_run(Tool.objects.get())
    changing_module(pay_out=pay("Pay at once."))
    with django_capture_on_commit_callbacks() as nudges:
        assert sync().voided == 1
    run.refresh_from_db()
    execution.refresh_from_db()
    approval.refresh_from_db()
    assert approval.state == Approval.State.SUPERSEDED
    assert execution.state == ToolExecution.State.PROPOSED
    assert execution.approval is None
    assert runs.claim(run.pk) is not None, "the run is due, so that a worker asks again"
    assert len(nudges) == 1
    types = [event.type for event in Event.objects.filter(run_id=run.pk).order_by("seq")]
    assert types[-3:] == ["approval.superseded", "tool_call.set_aside", "run.claimed"]
    assert ledger.verify()[1] is None


def test_what_people_reject_in_the_meantime_stays_rejected(changing_module: Any, monkeypatch: Any, dana: User) -> None:
    changing_module(pay_out=pay("Pay."))
    sync()
    _, execution, approval = waiting_run(Tool.objects.get())
    Approval.objects.update(allowed_decisions=["approve", "reject"])
    approval.refresh_from_db()
    real = runs.lock

    def lock_behind_a_decision(run_id: uuid.UUID) -> Run | None:
        monkeypatch.setattr(contracts.runs, "lock", real)
        take(approval, dana, "reject", message="No.")
        return real(run_id)

    monkeypatch.setattr(contracts.runs, "lock", lock_behind_a_decision)
    changing_module(pay_out=pay("Pay at once."))
    assert sync().voided == 0
    approval.refresh_from_db()
    execution.refresh_from_db()
    assert (approval.state, execution.state) == (Approval.State.REJECTED, ToolExecution.State.WAITING)


def test_a_run_that_a_worker_holds_keeps_its_worker(changing_module: Any) -> None:
    changing_module(pay_out=pay("Pay."))
    sync()
    run, execution, _ = waiting_run(Tool.objects.get(), state="running")
    held_by = Run.objects.get(pk=run.pk).lease_token
    changing_module(pay_out=pay("Pay at once."))
    assert sync().voided == 1
    run.refresh_from_db()
    execution.refresh_from_db()
    assert (run.state, run.lease_token) == (Run.State.RUNNING, held_by)
    assert execution.state == ToolExecution.State.PROPOSED


def test_an_unchanged_contract_voids_nothing(changing_module: Any) -> None:
    changing_module(pay_out=pay("Pay."))
    sync()
    _, execution, approval = waiting_run(Tool.objects.get())
    assert sync().voided == 0
    approval.refresh_from_db()
    execution.refresh_from_db()
    assert approval.state == Approval.State.PENDING
    assert execution.state == ToolExecution.State.WAITING


def test_an_approval_that_was_used_is_left_alone(changing_module: Any) -> None:
    changing_module(pay_out=pay("Pay."))
    sync()
    _, _, approval = waiting_run(Tool.objects.get())
    now = timezone.now()
    Approval.objects.update(
        state="used", used_at=now, decided_at=now, runs_at=now, use_by=now, final_digest=approval.action_digest
    )
    changing_module(pay_out=pay("Pay at once."))
    assert sync().voided == 0
    approval.refresh_from_db()
    assert approval.state == Approval.State.USED


def test_requests_left_over_by_a_sync_that_died_are_found_by_the_next(changing_module: Any) -> None:
    changing_module(pay_out=pay("Pay."))
    sync()
    waiting_run(Tool.objects.get())
    changing_module(pay_out=pay("Pay at once."))
    Tool.objects.update(description="Pay at once.", version=pay("Pay at once.").version)
    synced = sync()
    assert synced.changes == []
    assert synced.voided == 1


def test_a_dry_run_says_the_same_and_changes_nothing(changing_module: Any) -> None:
    changing_module(pay_out=pay("Pay."))
    sync()
    _, _, approval = waiting_run(Tool.objects.get())
    before = list(Tool.objects.values()), Event.objects.count()
    changing_module(pay_out=pay("Pay at once."))
    synced = tool_sync.sync("test", dry_run=True)
    assert [change.name for change in synced.changes] == ["pay_out"]
    assert synced.voided == 1
    assert (list(Tool.objects.values()), Event.objects.count()) == before
    approval.refresh_from_db()
    assert approval.state == Approval.State.PENDING


def test_the_command_prints_what_changed() -> None:
    out = StringIO()
    call_command("sync_tools", "--dry-run", stdout=out)
    assert "+ agentapp.Tool pay_out" in out.getvalue()
    assert "4 rows would change, 0 open requests would be set aside." in out.getvalue()
    assert Tool.objects.count() == 0
    call_command("sync_tools", stdout=StringIO())
    Tool.objects.update(effect_class="read")
    out, err = StringIO(), StringIO()
    call_command("sync_tools", stdout=out, stderr=err)
    assert out.getvalue() == "0 rows changed, 0 open requests set aside.\n"
    assert "pay_out is declared irreversible in code, but set to read." in err.getvalue()


def test_a_module_that_cannot_be_read_is_named_and_nothing_is_written(settings: Any) -> None:
    settings.TOOL_MODULES = [MODULE, "tests.no_such_module"]
    with pytest.raises(ImproperlyConfigured, match=r"tests\.no_such_module"):
        sync()
    with pytest.raises(CommandError, match="TOOL_MODULES"):
        call_command("sync_tools")
    assert Tool.objects.count() == 0


def test_a_sync_writes_every_contract_column_and_no_safety_column() -> None:
    columns = {field.name for field in Tool._meta.get_fields() if isinstance(field, models.Field)}
    contract, safety = contracts.contract_columns(pay()), contracts.first_safety_columns(pay())
    assert not set(contract) & set(safety)
    untouched = columns - set(contract) - set(safety) - {"id", "name", "source"}
    assert untouched == {"enabled", "approval_mode", "max_calls_per_run", "questions", "starters"}


def lend(**options: Any) -> base.Tool:
    @base.tool("lend", effect="compensable", **options)
    def lend_out(amount: float, borrower: str) -> dict[str, Any]:
        """Lend something."""
        return {}

    return lend_out


@pytest.mark.parametrize(("cost", "kept"), [(0.01, "0.01"), (1, "1"), (Decimal("0.000002"), "0.000002")])
def test_what_a_call_costs_is_kept_as_it_is_said(changing_module: Any, cost: Any, kept: str) -> None:
    changing_module(lend=lend(cost=cost))
    sync()
    assert Tool.objects.get().cost_per_call == Decimal(kept)


def test_a_tool_that_is_taken_back_by_one_that_there_is_not_is_refused(changing_module: Any) -> None:
    changing_module(lend=lend(undo=lambda amount: {"amount": amount}, undone_by="take_bak"))
    with pytest.raises(ImproperlyConfigured, match="'lend' is undone_by 'take_bak', which is not a tool"):
        sync()
    assert not Tool.objects.exists()


def test_a_tool_that_is_taken_back_by_one_that_is_gone_is_warned_about(changing_module: Any) -> None:
    changing_module(pay=pay())
    sync()
    changing_module(lend=lend(undo=lambda amount: {"amount": amount}, undone_by="pay_out"))
    assert sync().warnings == ["lend is undone by pay_out, which its source no longer lists."]


def test_a_mark_that_looks_like_an_argument_is_warned_about(changing_module: Any) -> None:
    changing_module(lend=lend(pii=("borower",)))
    assert sync().warnings == ["lend marks 'borower', which is not one of its arguments; did you mean 'borrower'?"]


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"owner": "o" * 121}, "owner: Ensure this value has at most 120 characters"),
        ({"owner": "the\0desk"}, "owner: "),
        ({"title": "t" * 301}, "title_template: Ensure"),
        ({"cost": Decimal("0.0000001")}, "cost_per_call: Ensure that there are no more than 6 decimal places"),
        ({"cost": Decimal(-1)}, "cost_per_call: Ensure this value is greater than or equal to 0"),
    ],
)
def test_what_no_row_can_hold_is_refused_by_name_and_leaves_the_tool_as_it_was(
    changing_module: Any, options: dict[str, Any], wrong: str
) -> None:
    changing_module(lend=lend(**options))
    with pytest.raises(ImproperlyConfigured, match=f"The tool 'lend' cannot be kept: {wrong}"):
        sync()
    assert not Tool.objects.exists()


def test_a_contract_that_no_row_can_hold_leaves_the_tool_as_it_was(changing_module: Any) -> None:
    changing_module(lend=lend())
    sync()
    was = Tool.objects.get(name="lend").version
    changing_module(lend=lend(title="t" * 301))
    with pytest.raises(ImproperlyConfigured, match="The tool 'lend' cannot be kept: title_template"):
        sync()
    assert Tool.objects.get(name="lend").version == was


def test_loading_what_was_dumped_changes_nothing_of_what_a_sync_wrote(changing_module: Any) -> None:
    nested: dict[str, Any] = {
        "type": "object",
        "properties": {"order": {"type": "object", "properties": {"iban": {"type": "string"}}}},
    }
    made = base.tool(
        "close", input_schema=nested, description="Close.", secret=("iban", "pin"), snapshot=lambda order: order
    )
    given = base.tool("give", description="Give.", secret=("code",), cost=Decimal("0.1"))

    def close(order: dict[str, str]) -> dict[str, str]:
        return order

    def give() -> dict[str, str]:
        return {"code": "1"}

    changing_module(close=made(close), give=given(give))
    sync()
    ensure_roles()
    assert configuration_file.load(configuration_file.dump(), "test") == []
