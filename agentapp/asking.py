"""How people learn more before they decide: they ask the agent, or answer in its place."""

import uuid
from datetime import timedelta
from functools import partial

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction

from agentapp import nudges, runs
from agentapp.models import Run
from agentapp.refused import Refused
from approvals import comments, decisions, ledger, standing
from approvals.digest import storable
from approvals.models import Approval, Question


def ask_agent(approval_id: uuid.UUID, text: str, user: User) -> Question:
    """Ask the agent about its call. The clock stops meanwhile; anybody who may decide still can."""
    approval = Approval.objects.filter(pk=approval_id).first()
    if approval is None:
        raise Refused("not_found", "There is no such request.")
    with ledger.transaction():
        run = runs.lock(approval.run_id)
        words = comments.without_secrets_of(approval, storable(text))
        asked = decisions.ask(approval_id, user, words, timedelta(seconds=settings.QUESTION_SECONDS))
        if isinstance(asked, Question) and run is not None:
            runs.wake(run, runs.clock(run))
            transaction.on_commit(partial(nudges.answered, run.pk), robust=True)
    if isinstance(asked, standing.Refusal):
        approval.refresh_from_db()
        raise Refused.by(asked, approval)
    return asked


def answer_question(question_id: uuid.UUID, text: str, user: User) -> Question:
    """Answer a question in the agent's place. The person who started the run knows why it was started."""
    question = Question.objects.select_related("approval").filter(pk=question_id).first()
    if question is None:
        raise Refused("not_found", "There is no such question.")
    run = Run.objects.filter(pk=question.approval.run_id).first()
    if run is None or not may_answer(user, question, run):
        raise Refused(
            "forbidden", "Only the agent, or the person who started its run or has taken it over, can answer this."
        )
    if not text.strip():
        raise Refused("message_required", "Write the answer.", "text")
    with ledger.transaction():
        runs.lock(run.pk)
        answered = decisions.answer(question_id, comments.without_secrets_of(question.approval, storable(text)), user)
    if not answered:
        raise Refused("already_answered", "This has been answered already.")
    question.refresh_from_db()
    return question


def may_answer(user: User, question: Question, run: Run) -> bool:
    """Only the people who started the run or have taken it over, even late, as long as nothing is decided."""
    waits = not question.answer and question.approval.state in Approval.UNDECIDED
    return waits and user.is_active and user.pk in (run.starter_id, run.taken_over_by_id)
