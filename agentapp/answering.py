"""People ask about a waiting call: the agent answers in words, and may propose the call again with other arguments.

If it does, people are asked about the new arguments. If not, the call goes on waiting as it was.

None of this is sent to the model later, and nothing the model says decides. If a worker dies in the
middle, the question stays open and the next worker asks again.
"""

import logging
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

from django.db import DatabaseError, InterfaceError

from agentapp import budgets, executions, runs
from agentapp.breakers import CircuitOpen
from agentapp.compilers import compile_messages
from agentapp.drivers.base import StepRequest
from agentapp.drivers.in_words import in_words
from agentapp.history import BrokenHistory
from agentapp.hooks import HookFailed
from agentapp.llm import ModelError
from agentapp.messages import Reply, StopRun, UserMessage
from agentapp.models import ToolExecution
from agentapp.proposals import judge_again
from agentapp.runtime import DriveRuntime, driver_of
from agentapp.state import RunState
from agentapp.switches import Stopped
from agentapp.toolset import specs
from agentapp.transcript import decided
from approvals import clock, decisions, ledger, questions
from approvals.digest import canonical, parse, storable
from approvals.masking import blotted, masked_beside
from approvals.models import Approval, Question
from approvals.sealed import digest_of

log = logging.getLogger(__name__)

TRY_AGAIN_SECONDS = 10
ASKED = (
    "A person asks about your proposed call of {tool}, with the arguments {arguments}. It has not run; it still waits "
    "for their decision. They ask:\n\n{question}\n\nAnswer in a few sentences, from what you know. If you do not know, "
    "say so. Your answer decides nothing, and nothing runs now. If the call should have other arguments, call "
    "{tool} once with all of them: that replaces your proposal, and they decide about it instead."
)
INSTEAD = "After a question the agent proposes other arguments."
NO_WORDS = "(It proposes other arguments and says nothing more.)"
BEGUN_BEFORE = "this call may have happened already, and can only be tried again as it was"
LOOKED_AT_BY_HOOKS = "a hook checks what this agent proposes, and cannot be asked here"


def answer_people(state: RunState) -> float | None:
    """Answer what people ask about the waiting calls. No transaction is open here.

    None: nothing is left to answer. Otherwise the model cannot answer now, and the run is released for so many seconds.
    """
    waiting = {e.approval_id: e for e in state.steps[-1].open if e.state == ToolExecution.State.WAITING}
    if not waiting:
        return None
    for question in questions.open_in(state.run.pk):
        if question.approval_id not in waiting:
            continue
        try:
            reply = _ask(state, waiting[question.approval_id], question)
        except (ModelError, CircuitOpen) as error:
            again = isinstance(error, CircuitOpen) or error.retryable
            if again and clock.now() + timedelta(seconds=TRY_AGAIN_SECONDS) < question.answer_by:
                runs.release(state.run, state.token, "a question waits for an answer", TRY_AGAIN_SECONDS)
                return TRY_AGAIN_SECONDS
            _give_up(
                state,
                question,
                str(error) if isinstance(error, CircuitOpen) else f"the model could not answer ({error.code})",
            )
        except BrokenHistory as broken:
            _give_up(state, question, str(broken))
        except (StopRun, HookFailed, Stopped, runs.LeaseLost, DatabaseError, InterfaceError):
            raise
        except Exception as error:  # a driver may fail in any way, and a question must not end the run
            log.exception("The question %s could not be put to the agent", question.pk)
            _give_up(state, question, f"asking failed ({type(error).__name__})")
        else:
            _keep(state, waiting[question.approval_id], question, reply)
        _look_again(waiting.values())
    return None


def _look_again(waiting: Iterable[ToolExecution]) -> None:
    """Models take time: meanwhile a request may have expired, and people may have been asked again about its call."""
    calls = {execution.pk: execution for execution in waiting}
    for pk in ToolExecution.objects.filter(pk__in=calls, approval=None).values_list("pk", flat=True):
        calls[pk].refresh_from_db()


def _ask(state: RunState, execution: ToolExecution, question: Question) -> Reply:
    """The model's reply. Raises ModelError."""
    run = state.run
    breach = budgets.breach(run, state.steps, budgets.next_step_cost(state.steps), runs.clock(run).date())
    if breach is not None:
        raise ModelError(f"the run may not pay for an answer: {breach.signal.message}", code="budget")
    arguments = _waiting_arguments(execution, Approval.objects.get(pk=question.approval_id))
    asked = ASKED.format(tool=execution.name, arguments=arguments, question=question.text)
    request = StepRequest(
        run_id=str(run.pk),
        step=decided(state.earlier.kept) + run.step_count,
        agent=run.agent_snapshot,
        script=run.script,
        messages=(*compile_messages(run, state.earlier, state.steps, under_way=True), UserMessage(asked)),
        tools=tuple(specs(state.disclosed)),
        tool_choice="auto",
    )
    reply = in_words(driver_of(state), DriveRuntime(state), request)
    return replace(reply, text=blotted(reply.text, execution.secret_values))


def _waiting_arguments(execution: ToolExecution, approval: Approval) -> str:
    """The arguments people are asked about. The model may see secrets it proposed, but none that a person put in."""
    if not approval.is_edited and approval.editor_id is None:
        return approval.arguments_text
    fields = execution.all_secret_fields
    waits = parse(approval.final_arguments_text or approval.arguments_text)
    return canonical(masked_beside(waits, parse(execution.arguments_text or "{}"), fields, same=None))


def _keep(state: RunState, execution: ToolExecution, question: Question, reply: Reply) -> None:
    usage = reply.usage.credible
    anew, why_not = _proposed_instead(state, execution, question, reply)
    text = storable(reply.text).strip() or (NO_WORDS if anew or why_not else "")
    if why_not:
        text += f"\n\n(It tried to propose other arguments but could not: {blotted(why_not, execution.secret_values)})"
    facts = {
        "model": storable(reply.model)[:120],
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cost": None if usage.cost is None else str(usage.cost),
        **({"proposed_digest": digest_of(anew, execution.salt)} if anew else {}),
    }
    with ledger.transaction():
        run = state.locked()
        runs.add_usage(run, usage)
        budgets.spend(run, usage.cost)
        if not text:
            decisions.go_on(question.pk, "the agent said nothing")
            return
        approval = Approval.objects.get(pk=question.approval_id)
        # A decision made meanwhile is about the call as it was.
        waits = approval.state in Approval.UNDECIDED and execution.approval_id == approval.pk
        anew = anew if waits and not run.is_told_to_stop else ""
        if decisions.answer(question.pk, text, facts=facts, proposed_text=anew) and anew:
            decisions.supersede(approval, INSTEAD)
            executions.set_aside(execution, INSTEAD, anew)


def _proposed_instead(state: RunState, execution: ToolExecution, question: Question, reply: Reply) -> tuple[str, str]:
    """The arguments the agent proposes instead, checked like any; or why it may not. Both empty: it proposes none."""
    call = next((call for call in reply.tool_calls if call.name == execution.name), None)
    tool = state.disclosed.get(execution.name)
    if call is None or tool is None:
        return "", ""
    if execution.attempts:
        return "", BEGUN_BEFORE
    state.refresh_configuration()
    asked = [*questions.about(question.approval).exclude(proposed_text="").select_related("approval"), question]
    text, why_not = judge_again(replace(state.situation, asked=asked), call, execution)
    approval = Approval.objects.filter(execution=execution).first()
    if approval is None:  # it has expired, and people are asked again
        return "", ""
    if text and text == (approval.final_arguments_text or approval.arguments_text):
        return "", ""
    if text and state.hooks.at("before_tool_use"):
        return "", LOOKED_AT_BY_HOOKS
    return text, why_not


def _give_up(state: RunState, question: Question, why: str) -> None:
    with ledger.transaction():
        state.locked()
        decisions.go_on(question.pk, storable(why)[:500])
