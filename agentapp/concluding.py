"""Whether a run's last step ends it, and how: its row, what depends on it, and the hooks around its end."""

from agentapp import closing, conversations, endings, limits, points, runs
from agentapp.endings import Ending
from agentapp.messages import StopSignal
from agentapp.models import Run
from agentapp.reasons import StopReason
from agentapp.state import RunState
from approvals import ledger

COMPLETED = StopSignal(StopReason.COMPLETED, "")
# Hooks between a step and the end of its run, called while no transaction is open.
HOOKED = ("after_step", "on_stop", "after_execution")


def was_last(state: RunState) -> bool:
    """Whether the run's last step should have ended it, but its worker died first."""
    if not state.steps:
        return False
    rows = state.steps[-1]
    if points.stop_of_calls(rows) is not None:
        return True
    return not rows.open and (
        not rows.executions or bool(rows.step.error) or limits.rounds_are_used_up(state.run, state.steps[:-1])
    )


def conclude(state: RunState) -> bool:
    """End the run if its last step was final: it was stopped, failed, used up the rounds, or has an answer.

    Also called by a worker that takes over from one that died right after such a step.
    """
    rows = state.steps[-1]
    answer = "" if rows.step.error else rows.step.text
    broke_down = rows.step.error == StopReason.ERROR
    if (stopped := points.stop_of_calls(rows)) is not None:
        end_by(state, stopped)
    elif limits.rounds_are_used_up(state.run, state.steps[:-1]) and not broke_down:
        points.after_step(state)
        signal = limits.rounds_signal(state.run, state.steps[:-1])
        end(state, Run.State.STOPPED, signal, answer, partial=bool(answer.strip()))
    elif rows.step.error:
        points.after_step(state)
        message = rows.executions[0].message if rows.executions else "The driver failed."
        end(state, Run.State.FAILED, StopSignal(StopReason.ERROR, message, source="driver"))
    elif rows.executions:
        state.step_under_way = True
        if not rows.open:
            state.look_for_pause()
        return False
    elif points.after_step(state):
        state.look_for_pause()
        return False
    elif (cut := limits.finish_signal(state.run, state.steps)) is not None:
        end(state, Run.State.STOPPED, cut, answer, partial=bool(answer.strip()))
    elif answer.strip():
        end(state, Run.State.SUCCEEDED, COMPLETED, answer)
    else:
        message = "The model gave neither an answer nor a call."
        end(state, Run.State.FAILED, StopSignal(StopReason.ERROR, message, source="model"))
    return True


def end_with_step(state: RunState) -> Ending | None:
    """End the run in the transaction that has just stored its last step, if that step is a plain answer.

    None: it is not, or a hook is called in between; then `conclude` decides once the step is stored.
    """
    rows, run = state.steps[-1], state.run
    if (
        rows.executions
        or rows.step.error
        or not rows.step.text.strip()
        or run.parent_id is not None
        or any(state.hooks.at(point) for point in HOOKED)
        or limits.rounds_are_used_up(run, state.steps[:-1])
        or limits.finish_signal(run, state.steps) is not None
    ):
        return None
    return _close(state, Run.State.SUCCEEDED, COMPLETED, rows.step.text)


def tell(state: RunState, ended: Ending) -> None:
    """Tell observers about a run that `end_with_step` has ended. It has no hooks at these points."""
    points.after_step(state)
    points.before_end(state, Run.State.SUCCEEDED, COMPLETED)  # as the model ended it, just as `end` calls it
    points.after_execution(state, ended.state, ended.signal, ended.answer)


def end_by(state: RunState, signal: StopSignal) -> None:
    """End the run as a tool, a hook or a person asked, or as a broken hook forces."""
    end(state, Run.State.FAILED if signal.reason == StopReason.ERROR else Run.State.STOPPED, signal)


def end(state: RunState, final: str, signal: StopSignal, answer: str = "", *, partial: bool = False) -> None:
    """Finish the run, answer its open calls, withdraw its open requests, keep its answer."""
    points.before_end(state, final, signal)
    with ledger.transaction():
        if state.run.parent_id is not None:
            runs.lock_parent(state.run.pk)
        ended = _close(state, final, signal, answer, partial=partial)
    points.after_execution(state, ended.state, ended.signal, answer)


def _close(state: RunState, final: str, signal: StopSignal, answer: str, *, partial: bool = False) -> Ending:
    run = state.locked()
    final, signal = endings.strictly(run, final, signal)
    closing.finish(run, final, signal, answer, partial=partial)
    state.discard_draft()
    if answer and run.conversation is not None:
        conversations.add(run.conversation, run, "assistant", answer)
    return Ending(final, signal, answer)
