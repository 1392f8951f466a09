"""What rules may know about other calls: how much, how many, and whether a value was ever used. Reads only.

Calls count if they took effect, may have taken effect (they are running, or nobody knows), or wait to run with nobody
left to ask. Of the waiting ones only earlier calls count, so that of two at once one is the first. Refused, rejected
and failed calls do not count.
"""

from collections.abc import Generator, Mapping
from contextlib import closing
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.db import connection
from django.db.models import F, Q, QuerySet, Subquery

from agentapp.models import Run, Tool, ToolExecution
from agentapp.tools.arguments import effective
from approvals.digest import canonical, parse, sha256
from approvals.models import Approval
from approvals.streaming import streamed
from approvals.totals import Look

State = ToolExecution.State
# The longest value to search for. Anything longer is not an account, name or number.
MAX_VALUE_CHARS = 500
# Far more calls than a rule would need. Beyond this, no total is given.
MAX_CALLS = 50_000
_READ = (
    "name", "state", "attempts", "started_at", "result_status", "reason", "control", "executed_text", "arguments_text",
    "erased_at",
)  # fmt: skip


class KeptCalls:
    """The history of one call: everything that was called before it. Each look is one query, made once."""

    def __init__(
        self,
        run: Run,
        tools: Mapping[str, Tool],
        now: datetime,
        again: ToolExecution | None = None,
        begins: bool = False,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        self._run, self._tools, self._now = run, tools, now
        self._again, self._begins = again, begins
        self._arguments = arguments or {}
        self._answers: dict[Look, float | int | bool] = {}

    def answer(self, look: Look) -> float | int | bool:
        """The current answer. Raises LookupError or ValueError if there is none."""
        if look not in self._answers:
            if self._begins:
                _one_at_a_time()
            self._answers[look] = self._find(look)
        return self._answers[look]

    def _find(self, look: Look) -> float | int | bool:
        if look.function == "count":
            self._tool(look.subject)
            with closing(self._counted(look.subject, look)) as calls:
                return sum(1 for _ in calls)
        tool, path = self._split(look.subject)
        if look.function == "first_time":
            return self._is_first(tool, path, look)
        with closing(self._counted(tool.name, look)) as calls:
            # An erased call's amount is no longer known, only that there was a call.
            told = (_number(self._arguments_of(call, tool), path) for call in calls if call.erased_at is None)
            return float(sum(told, Decimal(0)))

    def _is_first(self, tool: Tool, path: list[str], look: Look) -> bool:
        """Whether no call that took effect had this call's value there."""
        value = _look_up(self._arguments, path)
        if value is None or value == "":
            raise LookupError(f"this call has no {'.'.join(path)}")
        text = f'"{path[-1]}":{canonical(value)}'
        if len(text) > MAX_VALUE_CHARS:
            raise ValueError(f"{'.'.join(path)} is too long to look for")
        # The text only finds candidates: it could occur elsewhere, and one database ignores case.
        done = self._scoped(tool.name, look.scope).filter(state=State.FINISHED, started_at__isnull=False)
        found = done.filter(executed_text__contains=text).only(*_READ)
        with streamed(found) as calls:
            return not any(call.took_effect and _look_up(parse(call.executed_text), path) == value for call in calls)

    def _counted(self, name: str, look: Look) -> Generator[ToolExecution]:
        """The caller closes this at once: a cursor closed later would end another transaction."""
        since = self._now - timedelta(seconds=look.seconds)
        ran = Q(started_at__gte=since)
        # Tried before, whether or not it will be retried: it may have happened then.
        tried = Q(started_at__isnull=True, attempts__gt=0) & (Q(finished_at__isnull=True) | Q(finished_at__gte=since))
        free = Q(state=State.READY) | Q(state=State.WAITING, approval__state=Approval.State.APPROVED)
        if self._again is not None:
            free &= _before(self._again)
        found = self._scoped(name, look.scope).filter(ran | tried | free).only(*_READ)
        kept = found.annotate(approved_text=F("approval__final_arguments_text"))
        with streamed(kept) as calls:
            for number, call in enumerate(calls):
                if number >= MAX_CALLS:
                    raise ValueError(f"there are more calls of {name} than can be counted")
                if _may_have_happened(call):
                    yield call

    def _scoped(self, name: str, scope: str) -> QuerySet[ToolExecution]:
        # A mocked run is isolated: it does not count elsewhere, and other runs do not count in it.
        own = {"run_id": self._run.pk} if self._run.is_mocked else {}
        calls = ToolExecution.objects.filter(name=name, mocked=self._run.is_mocked, **own)
        if self._again is not None:
            calls = calls.exclude(pk=self._again.pk)
        if scope == "customer":
            if not self._run.customer:
                raise LookupError("this run is about no customer")
            return calls.filter(run__customer=self._run.customer)
        if scope == "agent":
            return calls.filter(run__agent_id=self._run.agent_id)
        return calls.filter(run_id=self._run.pk) if scope == "run" else calls

    def _split(self, subject: str) -> tuple[Tool, list[str]]:
        """The tool and the path to its argument. Raises LookupError if either does not exist."""
        name, _, path = subject.partition(".")
        tool = self._tool(name)
        keys = path.split(".")
        if keys[0] not in tool.input_schema.get("properties", {}):
            raise LookupError(f"{name} has no argument {keys[0]}")
        if set(keys) & set(tool.secret_fields):
            raise LookupError(f"{path} of {name} is secret, so it has no history")
        return tool, keys

    def _tool(self, name: str) -> Tool:
        tool = self._tools.get(name) or Tool.objects.filter(name=name).first()
        if tool is None:
            raise LookupError(f"there is no tool {name}")
        return tool

    def _arguments_of(self, call: ToolExecution, tool: Tool) -> Any:
        """The arguments that ran or, for a waiting call, that would run."""
        text = call.executed_text or call.approved_text  # type: ignore[attr-defined]
        return parse(text) if text else effective(tool, parse(call.arguments_text or "{}"))


def _one_at_a_time() -> None:
    """Until this transaction ends, no other call checks totals in order to begin. SQLite has one writer at a time."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])


_LOCK = int(sha256("totals of calls")[:15], 16)


def _before(call: ToolExecution) -> Q:
    """Calls that were proposed before this one. Calls of the same reply count in the model's order."""
    beside = Q(step_id=call.step_id, index__lt=call.index) | ~Q(step_id=call.step_id) & Q(pk__lt=call.pk)
    # From the table: the object of a row that was just stored does not know what the database set.
    proposed = Subquery(ToolExecution.objects.filter(pk=call.pk).values("proposed_at")[:1])
    return Q(proposed_at__lt=proposed) | Q(proposed_at=proposed) & beside


def _may_have_happened(call: ToolExecution) -> bool:
    """Whether a call that was found counts."""
    if not call.is_answered:
        return True
    return call.took_effect or call.was_left_unknown


def _number(arguments: Any, path: list[str]) -> Decimal:
    value = _look_up(arguments, path)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{'.'.join(path)} of an earlier call is not a number")
    # From the written form, so that 0.1 and 0.2 add up to 0.3.
    return Decimal(str(value))


def _look_up(arguments: Any, path: list[str]) -> Any:
    value = arguments
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value
