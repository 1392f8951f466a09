"""The OpenAPI document, with what the framework leaves out: scopes, and the media type of problems."""

from typing import Any

from ninja.openapi.schema import OpenAPISchema
from ninja.operation import Operation

from agentapp import auth
from agentapp.api.bearer import Bearer
from agentapp.api.errors import CONTENT_TYPE


class Document(OpenAPISchema):
    def operation_security(self, operation: Operation) -> list[dict[str, Any]] | None:
        """The scope an operation needs, with the scheme (OpenAPI 3.1 allows this for bearer tokens)."""
        security = super().operation_security(operation)
        scopes = [callback.scope for callback in operation.auth_callbacks if isinstance(callback, Bearer)]
        return [dict.fromkeys(scheme, scopes) for scheme in security or []]

    def operation_details(self, operation: Operation) -> dict[str, Any]:
        details: dict[str, Any] = super().operation_details(operation)
        scopes = [scope for scheme in details["security"] for names in scheme.values() for scope in names]
        needs = "\n".join(f"Scope `{scope}`: {auth.SCOPES[scope].lower()}." for scope in scopes)
        details["description"] = f"{details.get('description', '')}\n\n{needs}".strip()
        return details

    def responses(self, operation: Operation) -> dict[int, dict[str, Any]]:
        responses: dict[int, dict[str, Any]] = super().responses(operation)
        for status, response in responses.items():
            if status >= 400:
                response["content"] = {CONTENT_TYPE: next(iter(response["content"].values()))}
        return responses
