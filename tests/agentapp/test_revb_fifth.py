"""Review: whose wish it is that a run stops; comments; captions."""

from typing import Any

import pytest

from agentapp import actions
from agentapp.models import Run, Tool
from approvals.models import Approval, Notification, Rule
from tests.clerk_tools import effects_of
from tests.conftest import call, calls, make_user, says

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_comment_hides_a_secret_however_it_is_spelled(clerk, dana):
    Tool.objects.filter(name="pay").update(secret_fields=["account"])
    run = clerk.run(calls(call("p", "pay", account="DE89370400440532013000", amount=5)), says("done"))
    (approval,) = clerk.open(run)
    posted = actions.post_comment(approval.pk, "Is DE89 3704 0044 0532 0130 00 hers? de89370400440532013000", dana)
    assert "0044 0532" not in posted.comment.text, posted.comment.text


def test_what_is_asked_hides_a_secret_as_a_comment_does(clerk, dana):
    Tool.objects.filter(name="pay").update(secret_fields=["account"])
    run = clerk.run(calls(call("p", "pay", account="DE89370400440532013000", amount=5)), says("done"))
    (approval,) = clerk.open(run)
    question = actions.ask_agent(approval.pk, "Is DE89370400440532013000 hers?", dana)
    assert "DE89370400440532013000" not in question.text


def test_what_an_undo_says_hides_a_secret(clerk, dana):
    pass
