"""What holds for every page of the console, whoever looks: it makes few database queries."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from approvals.models import Approval
from tests.conftest import Clerk, call, calls, says

PAY = calls(call("l", "look_up", what="kettle"), call("p", "pay", account="ana", amount=5), text="I look, then pay.")
LISTS = (
    "/inbox/", "/inbox/?view=mine", "/inbox/?view=unclaimed", "/inbox/?view=decided",
    "/inbox/?risk=high&agent=clerk&q=a", "/inbox/filters/?risk=high", "/inbox/views/", "/inbox/focus/",
    "/counts/", "/search/?q=a", "/runs/",
    "/runs/?state=failed&tool=pay&error=a&approval=1&sort=activity", "/runs/new/", "/switches/", "/grants/",
    "/tools/", "/tools/?q=pay&source=python", "/tools/pay/", "/tools/pay/?part=rules", "/tools/pay/?part=calls",
    "/tools/pay/?part=versions", "/tools/pay/through/", "/tools/pay/try/", "/changes/", "/changes/?kind=tool&who=ada",
    "/changes/what-if/?since=7d",
    "/evals/",
    "/insights/", "/insights/cost/", "/insights/reliability/",
    "/settings/",
    "/settings/notifications/", "/settings/appearance/", "/settings/keys/", "/settings/security/",
    "/settings/sessions/", "/settings/tokens/", "/settings/absence/", "/settings/delegation/",
)  # fmt: skip
OF_A_REQUEST = (
    "", "?view=diff", "?view=json", "?do=approve", "?do=reject", "?do=ask", "?do=respond", "hand-over/", "snooze/",
    "state/", "evidence/", "grant/",
)  # fmt: skip


@pytest.fixture
def requests(clerk: Clerk, dana: User) -> list[Approval]:
    """One request waits, one was carried out, one was rejected; each in a conversation."""
    runs = [clerk.run(PAY, says("Done."), conversation=f"ticket-{n}", customer="Ana") for n in range(3)]
    found = [clerk.open(run)[0] for run in runs]
    clerk.decide(found[1], dana)
    clerk.decide(found[2], dana, type="reject", message="No.")
    for run in runs[1:]:
        clerk.drive(run)
    return found


@pytest.mark.parametrize("who", ["dana", "mia", "ada"])
def test_no_page_asks_the_database_more_than_twelve_times(
    client: Client,
    requests: list[Approval],
    django_assert_max_num_queries: Any,
    request: pytest.FixtureRequest,
    who: str,
) -> None:
    paths = [
        *LISTS,
        *(f"/inbox/peek/{requests[0].pk}/", f"/inbox/?id={requests[0].pk}"),
        *(f"/approvals/{one.pk}/{part}" for one in requests for part in OF_A_REQUEST),
        *(f"/runs/{one.run_id}/{part}" for one in requests for part in ("", "chat/", "cancel/")),
    ]
    client.force_login(request.getfixturevalue(who))
    for path in paths:
        with django_assert_max_num_queries(12, info=path):
            assert client.get(path).status_code in (200, 302, 403), path
