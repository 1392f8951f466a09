"""Generated requests for every operation of the API: whatever is sent, the document declares each answer.

Half of them name existing rows, sent by a person with the scope; everything they change is rolled back.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import schemathesis
from django.core.signals import request_finished, request_started
from django.db import close_old_connections, transaction
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from agentapp.wsgi import application
from approvals.models import Approval
from tests.examples import examples
from tests.security import surface
from tests.security.surface import World

pytestmark = pytest.mark.django_db
EXAMPLES = 20
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
# The people who may do the most with a scope, and one who may do nothing.
HANDS = ("starter", "approver", "admin", "outsider")


@pytest.fixture(autouse=True)
def _transactions_outlive_requests() -> Iterator[None]:
    """As Django's own test client does: otherwise the first request closes the connection inside its transaction."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@pytest.fixture
def world(roles: object) -> World:
    return surface.make_world()


@pytest.fixture(scope="module")
def described() -> Any:
    document = surface.document()
    return schemathesis.openapi.from_dict(document)


def each(described: Any) -> Iterator[Any]:
    for found in described.get_all_operations():
        yield found.ok()


@pytest.mark.parametrize("hands", HANDS)
def test_no_request_is_our_failure_and_every_answer_is_declared(world: World, described: Any, hands: str) -> None:
    scopes = {(method, f"/{route}"): scope for method, route, scope in surface.operations()}
    wrong, answered = [], defaultdict(set)
    for operation in each(described):
        scope = scopes[operation.method.upper(), operation.path]
        headers = surface.token_of(world.people[hands], scope)
        try:
            _try(operation, headers, world, answered[operation.path], hands)
        except (AssertionError, BaseExceptionGroup) as failed:
            wrong.append(f"{operation.label}: {failed}")
    assert wrong == []
    # If all requests were refused, this would show little.
    let_in = [path for path, statuses in answered.items() if statuses & {200, 201}]
    assert len(let_in) >= (1 if hands == "outsider" else len(answered) // 4)


def _try(operation: Any, headers: dict[str, str], world: World, answered: set[int], hands: str) -> None:
    @examples(EXAMPLES)
    @hypothesis.given(case=operation.as_strategy(), real=st.booleans())
    def sent(case: Any, real: bool) -> None:
        if real:
            _name_what_is_there(case, world)
        with transaction.atomic():
            response = case.call(app=application, headers=headers)
            transaction.set_rollback(True)
        answered.add(response.status_code)
        case.validate_response(response, checks=CHECKS)
        if hands == "outsider" and real and case.path_parameters:
            assert response.status_code >= 400, f"what is others' was answered with {response.status_code}"

    sent()


def _name_what_is_there(case: Any, world: World) -> None:
    """Existing rows in the path, and in the body the values that must match what was seen."""
    case.path_parameters = {name: world.values.get(name, value) for name, value in (case.path_parameters or {}).items()}
    if isinstance(case.body, dict):
        approval = Approval.objects.get(pk=world.values["approval_id"])
        seen = {"version": approval.version, "action_digest": approval.action_digest, "agent": "support"}
        case.body = {name: seen.get(name, value) for name, value in case.body.items()}
