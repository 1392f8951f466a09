"""Lists in pages, by key rather than by offset: a page costs the same however far down the list it is."""

from typing import Annotated, Any, Self

from django.db.models import Model, QuerySet
from pydantic import BaseModel, Field, ModelWrapValidatorHandler, ValidationError, ValidationInfo, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from agentapp.api.errors import ApiProblem
from approvals import signed_texts

MAX_LIMIT = 100


class Parameters(BaseModel):
    """The query parameters of one operation. Undeclared and repeated ones are refused."""

    @model_validator(mode="wrap")
    @classmethod
    def _only_declared(cls, data: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Self:
        given, wrong = (info.context or {})["request"].GET, []
        for name in given:
            if name not in cls.model_fields:
                wrong.append(_wrong(name[:80], words="There is no such parameter."))
            elif len(given.getlist(name)) > 1:
                wrong.append(_wrong(name, words="It is given more than once."))
        try:
            found = handler(data)
        except ValidationError as error:
            wrong += [_wrong(*item["loc"], words=item["msg"]) for item in error.errors()]
        if wrong:
            raise ValidationError.from_exception_data(cls.__name__, wrong)
        return found


def _wrong(*where: str | int, words: str) -> InitErrorDetails:
    return InitErrorDetails(type=PydanticCustomError("parameter", "{words}", {"words": words}), loc=where, input=None)


class Listing(Parameters):
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT, description="How many rows a page holds.")] = 25
    cursor: Annotated[
        str, Field(max_length=500, description="`next` from the previous page. Leave it out for the first page.")
    ] = ""


class Page[Item](BaseModel):
    items: list[Item]
    next: str | None = Field(description="The cursor for the next page. Null on the last page.")


def page_of[M: Model](rows: QuerySet[M], by: str, listing: Listing) -> tuple[list[M], str | None]:
    """One page of rows and the cursor for the next. `by` is a unique field, such as "name" or "-id".

    "-id" means newest first: keys sort by time, and both databases compare them exactly, which times are not.
    """
    name, side = by.removeprefix("-"), "lt" if by.startswith("-") else "gt"
    salt = f"page of {rows.model._meta.label} by {by}"
    rows = rows.order_by(by)
    if listing.cursor:
        rows = rows.filter(**{f"{name}__{side}": _read(listing.cursor, salt)})
    found = list(rows[: listing.limit + 1])
    if len(found) <= listing.limit:
        return found, None
    found.pop()
    return found, signed_texts.sign(str(getattr(found[-1], name)), salt)


def _read(cursor: str, salt: str) -> str:
    """A cursor is signed, so its content was put there by `page_of` for this very list."""
    try:
        place: str = signed_texts.read(cursor, salt)
    except signed_texts.BadSignature as error:
        raise ApiProblem("invalid_cursor", "This cursor does not belong to this list.", "cursor") from error
    return place
