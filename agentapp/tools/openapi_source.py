"""Tools of an OpenAPI document: a call is a request to the server, and the server's answer is the result.

Only the outbound guard decides where a request may go. A credential goes only to the server it is for.
A request that changes something is sent once; the result says that it was done, or was not, only if that is known.
"""

import dataclasses
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urljoin

import httpx2
from django.conf import settings

from agentapp.messages import ToolResult
from agentapp.reasons import Reason
from agentapp.tools import credentials, openapi_answer, openapi_request, outbound
from agentapp.tools.base import OutcomeUnknown, Tool, ToolContext
from agentapp.tools.credentials import Signature
from agentapp.tools.openapi_answer import MAX_ANSWER_BYTES, Answer
from agentapp.tools.openapi_request import Outgoing
from agentapp.tools.results import ToolError
from agentapp.tools.sources import Row, Source

KIND = "openapi"
# No argument has this name: a document cannot give it.
_CONTEXT = "(context)"
_ACCEPT = "application/json, */*;q=0.5"
_AGENT = "Countersign"
_RECEIPT = "X-Approval-Receipt"
# A redirect is followed only if it repeats a question: for these methods, if the tool changes nothing.
_FOLLOWED = frozenset({"GET", "HEAD"})
# Errors that occur before anything is sent.
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
_MAX_TOKEN_BYTES = 64 * 1024
_MARGIN_SECONDS = 0.5


def make(row: Row) -> Tool:
    """The tool of a row: `sources.implementation_of` for this kind."""

    def call(**arguments: Any) -> ToolResult:
        context: ToolContext = arguments.pop(_CONTEXT)
        return _Call(row, context).result(arguments)

    return Tool(
        name=row.name,
        description=row.description,
        input_schema=row.input_schema,
        output_schema=row.output_schema,
        function=call,
        contract=None,
        context_parameter=_CONTEXT,
        wire=row.wire,
    )


def outside(source: Source) -> outbound.Outside:
    """Where a source's calls may go: to its own host, or to those that an admin lists."""
    named = source.hosts or [httpx2.URL(source.location).host]
    hosts = frozenset(str(host).rstrip(".").lower() for host in named)
    return outbound.Outside(hosts, tuple(settings.OUTBOUND_NETWORKS))


@dataclass
class _Call:
    """One attempt."""

    row: Row
    context: ToolContext

    def __post_init__(self) -> None:
        left = (self.context.deadline - datetime.now(UTC)).total_seconds()
        # A little less than the caller waits: giving up here, we still know whether anything was sent.
        self.seconds = max(left - min(_MARGIN_SECONDS, left / 10), 0.001)
        self.until = time.monotonic() + self.seconds

    def result(self, arguments: Mapping[str, Any]) -> ToolResult:
        """What came of it. Raises ToolError if nothing was done, or OutcomeUnknown."""
        outgoing = openapi_request.made(self.row.wire, arguments)
        if self.row.consequential and self.row.idempotency == "key" and self.context.idempotency_key:
            _set(outgoing.headers, "Idempotency-Key", self.context.idempotency_key)
        if self.row.source.approval_receipts and (receipt := self.context.approval_receipt()):
            _set(outgoing.headers, _RECEIPT, receipt)
        self.context.check()
        try:
            with outbound.client(outside(self.row.source), self.seconds) as asking:
                return self._sent(asking, outgoing)
        except outbound.OutboundRefused as refused:
            return outbound.refusal(outgoing.url, str(refused))
        except _NOT_SENT as error:
            where = httpx2.URL(outgoing.url).host
            raise ToolError(f"{where} could not be reached; nothing was sent.", retryable=True) from error
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol, httpx2.LocalProtocolError) as error:
            raise ToolError("The request could not be written; nothing was sent. A person must check it.") from error
        except httpx2.HTTPError as error:
            return self._broken_off(error)

    def _sent(self, asking: httpx2.Client, outgoing: Outgoing) -> ToolResult:
        source = self.row.source
        uses = credentials.chosen(self.row.wire.get("security", ()), source.schemes, source.credentials)
        signature = self._signature(asking, uses)
        answer = self._answer(asking, outgoing, signature)
        if answer.status == httpx2.codes.UNAUTHORIZED and signature.renewable:
            # A cached token may expire early. A refused request did nothing, so it may be sent again.
            credentials.forget(signature.renewable)
            signature = self._signature(asking, uses)
            answer = self._answer(asking, outgoing, signature)
        answer = dataclasses.replace(answer, secrets=signature.secrets)
        found = openapi_answer.result_of(answer, writes=self.row.consequential)
        clean = credentials.redacted
        return dataclasses.replace(
            found,
            data=clean(found.data, signature.secrets),
            message=clean(found.message, signature.secrets),
            metadata=clean(found.metadata, signature.secrets),
        )

    # --- Requests ------------------------------------------------------------------------------

    def _answer(self, asking: httpx2.Client, outgoing: Outgoing, signature: Signature) -> Answer:
        """Send it, and follow redirects of a question. Raises what httpx2 raises, and OutboundRefused."""
        url = httpx2.URL(_with(outgoing.full_url, signature.query))
        first, headers = url, self._headers(outgoing, signature)
        is_question = outgoing.method in _FOLLOWED and not self.row.consequential
        for _ in range(outbound.MAX_REDIRECTS):
            answer = self._once(asking, _request(outgoing, url, headers))
            where = answer.headers.get("location", "")
            if not (where and 300 <= answer.status < 400 and is_question):
                return answer
            url = url.join(where)
            if _origin(url) != _origin(first):
                if credentials.redacted(where, signature.secrets) != where:
                    raise outbound.OutboundRefused("The server would redirect our credential to another host.")
                headers = {"Accept": _ACCEPT, **_OF_US}
        return answer

    def _headers(self, outgoing: Outgoing, signature: Signature) -> dict[str, str]:
        headers = {**_OF_US, "Accept": _ACCEPT, **outgoing.headers}
        for name, value in signature.headers.items():
            _set(headers, name, value)
        ours = {name for name, _ in signature.cookies}
        given = [pair for pair in outgoing.cookies if pair[0] not in ours]
        cookies = [f"{name}={value}" for name, value in (*given, *signature.cookies)]
        return {**headers, "Cookie": "; ".join(cookies)} if cookies else headers

    def _once(self, asking: httpx2.Client, request: httpx2.Request, most: int = MAX_ANSWER_BYTES) -> Answer:
        response = asking.send(request, stream=True, follow_redirects=False)
        content = bytearray()
        try:
            for part in response.iter_raw():
                content += part
                if len(content) > most:
                    break
                if time.monotonic() > self.until:
                    raise httpx2.ReadTimeout("the answer took too long", request=request)
        except httpx2.HTTPError:
            if response.status_code < httpx2.codes.BAD_REQUEST:
                raise
            # We know that it was refused, even if not everything said about it.
        finally:
            response.close()
        headers = {name.lower(): value for name, value in response.headers.items()}
        return Answer(response.status_code, headers, bytes(content[:most]), complete=len(content) <= most)

    def _broken_off(self, error: httpx2.HTTPError) -> ToolResult:
        """The connection failed at a point where the request may have been sent."""
        late = isinstance(error, httpx2.TimeoutException)
        what = "did not answer in time" if late else "broke off"
        if self.row.consequential:
            raise OutcomeUnknown(f"The server {what}: it may have done it.") from error
        reason = Reason.TOOL_TIMEOUT if late else Reason.TOOL_FAILURE
        return ToolResult("retryable_error", None, f"The server {what}.", reason)

    # --- Credentials ---------------------------------------------------------------------------

    def _signature(self, asking: httpx2.Client, uses: Mapping[str, str]) -> Signature:
        def token(url: str, form: dict[str, str], authorization: str) -> Mapping[str, Any]:
            return self._token(asking, urljoin(self.row.source.location, url), form, authorization)

        return credentials.signature(uses, self.row.source.schemes, token)

    def _token(self, asking: httpx2.Client, url: str, form: dict[str, str], authorization: str) -> Mapping[str, Any]:
        """What a token server answers. Nothing it says is repeated: it has seen the secret."""
        headers = {**_OF_US, "Accept": "application/json", "Authorization": authorization}
        try:
            answer = self._once(asking, httpx2.Request("POST", url, data=form, headers=headers), _MAX_TOKEN_BYTES)
        except httpx2.HTTPError as error:
            raise ToolError("The token server could not be reached; nothing was sent.", retryable=True) from error
        if answer.status == httpx2.codes.TOO_MANY_REQUESTS or answer.status >= 500:
            message = f"The token server cannot do it now ({answer.status}); nothing was sent."
            raise ToolError(message, retryable=True)
        found = openapi_answer.result_of(answer, writes=False).data
        if answer.status != httpx2.codes.OK or not isinstance(found, dict):
            raise ToolError(
                f"The token server gave no token ({answer.status}); nothing was sent. A person must check it."
            )
        return found


# No compressed answers are requested: they could be any size once decompressed.
_OF_US = {"User-Agent": _AGENT, "Accept-Encoding": "identity"}


def _request(outgoing: Outgoing, url: httpx2.URL, headers: dict[str, str]) -> httpx2.Request:
    if outgoing.parts:
        return httpx2.Request(outgoing.method, url, headers=headers, files=outgoing.parts)
    return httpx2.Request(outgoing.method, url, headers=headers, content=outgoing.content)


def _set(headers: dict[str, str], name: str, value: str) -> None:
    """Set our header, replacing any that the arguments gave."""
    for given in [other for other in headers if other.lower() == name.lower()]:
        del headers[given]
    headers[name] = value


def _with(url: str, query: list[tuple[str, str]]) -> str:
    """An address with our credentials in its query, replacing any that the arguments gave."""
    if not query:
        return url
    path, _, said = url.partition("?")
    ours = {name for name, _ in query}
    kept = [pair for pair in said.split("&") if pair and pair.partition("=")[0] not in ours]
    return f"{path}?{'&'.join([*kept, *(f'{name}={value}' for name, value in query)])}"


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port
