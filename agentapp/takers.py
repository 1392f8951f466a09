"""Who may not decide about what a run proposes: people who had a part in starting it, or in what it reads.

They are called takers after the first of them: people who took a run over.
"""

from agentapp.models import Agent, ApiToken, Conversation, Message, Run


def of(before: Run | None, parent: Run | None, token: ApiToken | None) -> list[int]:
    """The user ids barred from a new run, besides its starter. `before`: the run that it tries again or takes back.

    A person who took over a run may not decide about the runs it begins. Neither may the person who made the token that
    the run was started with: they have kept its secret, or could have.
    """
    if before is not None:
        found = sorted({*before.takers, before.starter_id} - {None})
    else:
        found = list(parent.takers) if parent is not None else []
    issuer = token.issued_by_id if token is not None else None
    return found if issuer is None or issuer in found else [*found, issuer]


def of_talk(run: Run) -> set[int]:
    """The people who had a part in what was said before a run, as it is now. They started the runs it was said to,
    spoke in the agents' place or, while a person had taken over, for the customer, made the tokens used for any of
    that, or wrote the summary that replaces it.

    Call this after reading the conversation: what is written later is read, and checked, later.
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
