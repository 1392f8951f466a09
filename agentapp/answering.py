"""People ask about a call that waits: the agent answers in words, and the call goes on waiting.

Nothing of it is part of what the model is sent later, and nothing the model says decides. A worker
that dies in the middle leaves the question open; the next one asks again.
"""

import logging
from dataclasses import replace
from datetime import timedelta

from django.db import DatabaseError
from django.utils import timezone

from agentapp import budgets, runs
from agentapp.breakers import CircuitOpen
from agentapp.compilers import compile_messages
from agentapp.drivers.base import StepRequest
from agentapp.drivers.in_words import in_words
from agentapp.history import BrokenHistory
from agentapp.hooks import HookFailed
from agentapp.llm import ModelError
from agentapp.messages import Reply, StopRun, UserMessage
from agentapp.models import ToolExecution
from agentapp.runtime import DriveRuntime, driver_of
from agentapp.secrecy import secrets_of
from agentapp.state import RunState
from agentapp.toolset import specs
from approvals import decisions, ledger, questions
from approvals.digest import storable
from approvals.masking import blotted
from approvals.models import Question

log = logging.getLogger(__name__)

TRY_AGAIN_SECONDS = 10
ASKED = (
    "A person asks about your proposed call of {tool}, with the arguments {arguments}. It has not run; it still waits "
    "for their decision. They ask:\n\n{question}\n\nAnswer them in a few sentences, from what you know. Say so where "
    "you do not know. You can call nothing now, and your answer decides nothing."
)


def answer_people(state: RunState) -> float | None:
    """Answer what people ask about the calls that wait. No transaction is open here.

    None: nothing is left to answer. Else the model cannot answer now; the run has been let go of for so many seconds.
    """
    waiting = {e.approval_id: e for e in state.steps[-1].open if e.state == ToolExecution.State.WAITING}
    if not waiting:
        return None
    for question in questions.open_about(filter(None, waiting)).order_by("asked_at"):
        try:
            reply = _ask(state, waiting[question.approval_id], question)
        except (ModelError, CircuitOpen) as error:
            again = isinstance(error, CircuitOpen) or error.retryable
            if again and timezone.now() + timedelta(seconds=TRY_AGAIN_SECONDS) < question.answer_by:
                runs.release(state.run, state.token, f"a question waits for an answer: {error}", TRY_AGAIN_SECONDS)
                return TRY_AGAIN_SECONDS
            _give_up(state, question, str(error))
        except BrokenHistory as broken:
            _give_up(state, question, str(broken))
        except (StopRun, HookFailed, runs.LeaseLost, DatabaseError):
            raise
        except Exception as error:  # a driver may fail in any way; a question must not end the run
            log.exception("The question %s could not be put to the agent", question.pk)
            _give_up(state, question, f"asking failed ({type(error).__name__})")
        else:
            _keep(state, question, reply)
    return None


def _ask(state: RunState, execution: ToolExecution, question: Question) -> Reply:
    """What the model says. Raises ModelError."""
    run = state.run
    breach = budgets.breach(run, budgets.next_step_cost(state.steps), runs.clock(run).date())
    if breach is not None:
        raise ModelError(f"the run may not pay for an answer: {breach.signal.message}", code="budget")
    asked = ASKED.format(tool=execution.name, arguments=execution.arguments_text, question=question.text)
    request = StepRequest(
        run_id=str(run.pk),
        step=len(state.earlier.kept) + run.step_count,
        agent=run.agent_snapshot,
        script=run.script,
        messages=(*compile_messages(run, state.earlier, state.steps, under_way=True), UserMessage(asked)),
        tools=tuple(specs(state.disclosed)),
        tool_choice="none",
    )
    reply = in_words(driver_of(state), DriveRuntime(state), request)
    return replace(reply, text=blotted(reply.text, secrets_of(execution)))


def _keep(state: RunState, question: Question, reply: Reply) -> None:
    usage, text = reply.usage.credible, storable(reply.text)
    facts = {
        "model": storable(reply.model)[:120],
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cost": None if usage.cost is None else str(usage.cost),
    }
    with ledger.transaction():
        run = state.locked()
        runs.add_usage(run, usage)
        budgets.spend(run, usage.cost)
        if not text.strip():
            decisions.go_on(question.pk, "the agent said nothing")
        else:
            decisions.answer(question.pk, text, facts=facts)


def _give_up(state: RunState, question: Question, why: str) -> None:
    with ledger.transaction():
        state.locked()
        decisions.go_on(question.pk, storable(why)[:500])
