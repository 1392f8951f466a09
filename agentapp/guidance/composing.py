"""The reply to the customer: follows the guidelines, asks for what is missing, and is checked against what was done."""

from collections.abc import Sequence
from dataclasses import replace

from agentapp.considered import Evaluated
from agentapp.guidance.guidelines import Guideline
from agentapp.guidance.inference import Brief, Inference
from agentapp.guidance.insights import standing, to_ask_for
from agentapp.guidance.known import Known, Turn
from agentapp.messages import Note, Reply

MAX_CORRECTIONS = 2
"""How often a reply that says too much is written again."""
UNSUPPORTED = "The reply says that this was done, and it was not: {}. Say what is true."
HONEST = "I cannot confirm that this has been done: {}."


def brief(counting: Sequence[Guideline], evaluations: Sequence[Evaluated], *, is_cut_off: bool) -> Brief:
    """What the reply is based on. `evaluations` are all of this run's, so it asks for what an earlier step lacked."""
    blocked = {evaluation.tool: evaluation for evaluation in evaluations}
    return Brief(
        guidelines=sorted((each for each in counting if each.action), key=lambda guideline: guideline.loudness),
        to_ask_for=to_ask_for(standing(evaluations)),
        not_done=[name for name, evaluation in blocked.items() if evaluation.state == "cannot_run"],
        is_cut_off=is_cut_off,
    )


def compose(
    turn: Turn, inference: Inference, asked_by: Brief, evaluations: Sequence[Evaluated], *, seen: bool
) -> Reply:
    """Write the reply. If a tool that changes the world was a candidate, the reply is checked against what was done.

    `seen` applies only if nothing is checked: people must not read a draft that is then taken back.
    """
    acts = acts_at_stake(turn.known, evaluations)
    reply = inference.compose(turn, asked_by, seen=seen and not acts)
    if not acts:
        return reply
    done = {call.tool for call in turn.known.calls if call.took_effect} | turn.known.done_before
    unsupported: list[str] = []
    for correction in range(MAX_CORRECTIONS + 1):
        claimed = inference.claims(turn, reply.text, acts) if reply.text.strip() else ()
        unsupported = [tool for tool in acts if tool in claimed and tool not in done]
        if not unsupported or correction == MAX_CORRECTIONS:
            break
        wrong = UNSUPPORTED.format(", ".join(unsupported))
        asked_by = replace(asked_by, corrections=(*asked_by.corrections, wrong))
        reply = inference.compose(turn, asked_by, seen=False)
    facts = {"acts": acts, "corrections": len(asked_by.corrections), "replaced": bool(unsupported)}
    note = Note("reply_checked", facts | ({"unsupported": unsupported} if unsupported else {}))
    if unsupported:
        said = HONEST.format(", ".join(tool.replace("_", " ") for tool in unsupported))
        reply = replace(reply, text=said, provider_parts=None)
    return replace(reply, notes=(*reply.notes, note))


def acts_at_stake(known: Known, evaluations: Sequence[Evaluated]) -> list[str]:
    """The candidates of this run that change the world."""
    names = dict.fromkeys(evaluation.tool for evaluation in evaluations)
    return [name for name in names if name in known.tools and known.tools[name].consequential]
