"""Comments on approvals: what people say to each other. No model reads them."""

import uuid
from datetime import datetime
from typing import Annotated

from ninja import Query, Router
from ninja.responses import Status
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from agentapp import actions, auth
from agentapp.api.bearer import ApiRequest, Bearer, person
from agentapp.api.errors import not_found, problems
from agentapp.api.paging import Listing, Page, page_of
from agentapp.api.tool_executions import Person
from approvals.models import Approval, Comment

router = Router(tags=["Approvals"])


class CommentIn(BaseModel):
    """The comment. `@username` notifies someone who may see the approval."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"text": "@marco, does the 30-day promise hold here?"}]}
    )

    text: Annotated[str, StringConstraints(strict=True, min_length=1, max_length=10_000)] = Field(
        description="Up to 2,000 characters, without markup. It cannot be changed afterwards."
    )


class CommentOut(BaseModel):
    """One comment."""

    id: uuid.UUID
    author: Person
    text: str
    at: datetime


class CommentPage(Page[CommentOut]):
    """Comments, oldest first."""


class PostedOut(BaseModel):
    """The comment, and who is told about it."""

    comment: CommentOut
    not_told: list[str] = Field(description="Mentioned usernames that belong to nobody who may see the approval.")


@router.get(
    "/approvals/{approval_id}/comments",
    auth=Bearer("approvals:read"),
    response={200: CommentPage, **problems(404, 422)},
    operation_id="list_comments",
    summary="List an approval's comments",
)
def list_comments(request: ApiRequest, approval_id: uuid.UUID, listing: Query[Listing]) -> CommentPage:
    """What people have said about an approval, oldest first."""
    rows = Comment.objects.select_related("author").filter(approval=_visible(request, approval_id))
    found, following = page_of(rows, "id", listing)
    return CommentPage(items=[_shown(comment) for comment in found], next=following)


@router.post(
    "/approvals/{approval_id}/comments",
    auth=Bearer("approvals:comment"),
    response={201: PostedOut, **problems(400, 404, 413, 415, 422)},
    operation_id="post_comment",
    summary="Comment on an approval",
)
def post_comment(request: ApiRequest, approval_id: uuid.UUID, body: CommentIn) -> Status[PostedOut]:
    """For people only: no model reads it, and it decides nothing. You can also comment after a decision."""
    _visible(request, approval_id)
    posted = actions.post_comment(approval_id, body.text, person(request))
    return Status(201, PostedOut(comment=_shown(posted.comment), not_told=list(posted.untold)))


def _shown(comment: Comment) -> CommentOut:
    author = comment.author
    name = author.get_full_name() or author.get_username()
    return CommentOut(
        id=comment.pk, author=Person(username=author.get_username(), name=name), text=comment.text, at=comment.at
    )


def _visible(request: ApiRequest, approval_id: uuid.UUID) -> Approval:
    approval: Approval | None = auth.visible_approvals(person(request)).filter(pk=approval_id).first()
    if approval is None:
        raise not_found()
    return approval
