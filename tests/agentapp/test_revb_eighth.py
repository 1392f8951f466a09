"""Review: a grant and what another agent handed on; health of an endpoint that is off on purpose."""

import pytest

from agentapp import health
from agentapp.models import WebhookEndpoint, WebhookProgress
from agentapp.models.webhooks import WEBHOOK_EVENTS
from django.utils import timezone
from approvals.models import Approval, Rule
from tests.clerk_tools import effects_of
from tests.conftest import call, calls, says

pytestmark = pytest.mark.django_db(transaction=True)


def test_an_endpoint_that_a_person_has_left_off_is_no_problem_for_ever(clerk):
    one = WebhookEndpoint.objects.create(
        name="desk", url="https://x.example", events=["run.failed"], credential="DESK", active=False
    )
    WebhookProgress.objects.create(
        endpoint=one, read_until=timezone.now(), problem="Its server answered 410: there is nobody for good."
    )
    # A person switches it on, sees that nobody is there, and switches it off for good.
    from approvals import configuration, ledger

    for active in (True, False):
        with configuration.transaction():
            one.active = active
            configuration.save(one, ledger.actor_of(None, "admin"))
    assert "webhooks_failing" not in [p.code for p in health.look()]
