"""Who decides nothing about what a run proposes: whoever had a part in its being there, or in what it reads."""

from agentapp.models import Agent, ApiToken, Conversation, Message, Run


def of(before: Run | None, parent: Run | None, token: ApiToken | None) -> list[int]:
    """The ids of users for a run that begins, besides its starter. `before`: the run that it tries again or takes back.

    Whoever took over a run decides nothing about those it begins, nor does who made the token that it was started with:
    they have kept its secret, or could have.
    """
    if before is not None:
        found = sorted({*before.takers, before.starter_id} - {None})
    else:
        found = list(parent.takers) if parent is not None else []
    issuer = token.issued_by_id if token is not None else None
    return found if issuer is None or issuer in found else [*found, issuer]


def of_talk(run: Run) -> set[int]:
    """Who had a part in what was said before a run, as it stands by now: started the runs that it was said to, spoke in
    their agents' place or, while a person had taken over, as from the customer, made the tokens of any of that, or
    wrote the summary that stands in the place of it.

    To be asked after it was read: what somebody writes later is read at a later look.
    """
    talks = {run.conversation_id, run.asked_in_id} - {None}
    if not talks:
        return set()
    said = Message.objects.filter(conversation__in=talks).order_by()
    parts = ("run__takers", "run__starter", "run__token__issued_by", "writer", "token__issued_by")
    found = {pk for takers, *others in said.values_list(*parts).distinct() for pk in (*(takers or ()), *others)}
    if run.agent.message_compiler == Agent.Compiler.SECTIONS and run.conversation_id is not None:
        told = Conversation.objects.filter(pk=run.conversation_id)
        found |= set(told.values_list("summarised_by", "summary_token__issued_by").get())
    return found - {None, run.starter_id}
