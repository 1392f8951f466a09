"""Credentials of services: read from the worker's environment when a call runs, and removed from whatever is kept.

A tool source names a credential for each security scheme of its document. `CREDENTIAL_<NAME>` holds it, or
`CREDENTIAL_<NAME>_FILE` names the file that does. Credentials never appear in a row, a log or a message.
"""

import base64
import functools
import hashlib
import html.entities
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from agentapp.tools.results import ToolError
from approvals import referenced

PREFIX = "CREDENTIAL_"
NAME = re.compile(r"[A-Z][A-Z0-9_]{0,79}")
REDACTED = "[redacted]"
# Shorter ones occur in ordinary words, and nobody protects anything with them.
_SHORTEST = 4
# Schemes that a person can name if the document names none.
WELL_KNOWN: dict[str, dict[str, Any]] = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "basic": {"type": "http", "scheme": "basic"},
}
# In seconds: how long before it expires a token is renewed, how long one is used that does not say when it expires, and
# the longest that any is used.
_EARLIER, _UNSAID, _LONGEST = 30.0, 300.0, 366 * 86400.0

type AskForToken = Callable[[str, dict[str, str], str], Mapping[str, Any]]
"""(address, form, the value of the Authorization header) → what the token server answered."""


@dataclass
class Signature:
    """What is added to a request: headers, and percent-encoded pairs for the query and for cookies."""

    headers: dict[str, str] = field(default_factory=dict)
    query: list[tuple[str, str]] = field(default_factory=list)
    cookies: list[tuple[str, str]] = field(default_factory=list)
    secrets: set[str] = field(default_factory=set)
    """What is removed from every answer."""
    renewable: list[str] = field(default_factory=list)
    """The keys of cached tokens: one that is refused may only have expired."""


def named(name: str) -> str:
    """The credential of this name. Raises ToolError, for the model; a person must set it."""
    try:
        value = referenced.secret(PREFIX + name) if NAME.fullmatch(name) else ""
    except referenced.Unreadable as error:
        raise ToolError(f"The credential {PREFIX}{name} cannot be read. A person must check its file.") from error
    if not value:
        raise ToolError(f"The credential {PREFIX}{name} is not set here, so nothing was sent. A person must set it.")
    if not value.isascii() or not value.isprintable():
        raise ToolError(f"The credential {PREFIX}{name} cannot be sent: it is not one line of plain letters.")
    return value


def chosen(
    security: Iterable[Sequence[str]], schemes: Mapping[str, Any], credentials: Mapping[str, str]
) -> Mapping[str, str]:
    """The first of an operation's alternatives for which there are credentials: scheme → credential.

    Raises ToolError if it requires some and there are none.
    """
    alternatives = [tuple(one) for one in security]
    if not schemes:
        # The document does not mention credentials, but a person may have named one.
        alternatives = alternatives or [tuple(credentials)]
    for one in alternatives:
        if one and all(name in credentials for name in one):
            return {name: credentials[name] for name in one}
    if alternatives and () not in alternatives:
        wanted = " or ".join(" with ".join(one) for one in alternatives)
        raise ToolError(f"No credential is named for {wanted}, so nothing was sent. A person must set up the source.")
    return {}


def signature(uses: Mapping[str, str], schemes: Mapping[str, Any], ask: AskForToken) -> Signature:
    """What is added to a request for these schemes. Raises ToolError. `ask` fetches a token if one is needed."""
    found = Signature()
    for scheme_name, credential in uses.items():
        scheme = schemes.get(scheme_name) or WELL_KNOWN.get(scheme_name)
        if not isinstance(scheme, dict):
            raise ToolError(f"The document does not say what {scheme_name} is. A person must check it.")
        value = named(credential)
        _learn(found.secrets, value)
        _sign(found, scheme_name, scheme, credential, value, ask)
    return found


def _sign(found: Signature, name: str, scheme: dict[str, Any], credential: str, value: str, ask: AskForToken) -> None:
    kind, http = scheme.get("type"), str(scheme.get("scheme", "")).lower()
    if kind == "apiKey":
        own = str(scheme.get("name", ""))
        if scheme.get("in") == "header":
            found.headers[own] = value
        elif scheme.get("in") == "query":
            found.query.append((quote(own, safe=""), quote(value, safe="")))
        else:
            found.cookies.append((quote(own, safe=""), quote(value, safe="")))
    elif kind == "http" and http == "basic":
        encoded = base64.b64encode(value.encode()).decode()
        _learn(found.secrets, encoded, value.partition(":")[2])
        found.headers["Authorization"] = f"Basic {encoded}"
    elif kind == "http" and http != "bearer":
        raise ToolError(f"{name} wants credentials in a way that is not supported here ({http[:20]}).")
    elif kind in ("http", "oauth2", "openIdConnect"):
        found.headers["Authorization"] = f"Bearer {_token(found, scheme, credential, value, ask)}"
    else:
        raise ToolError(f"{name} wants credentials in a way that is not supported here ({str(kind)[:20]}).")


# --- Tokens ------------------------------------------------------------------------------------

_tokens: dict[str, tuple[str, float]] = {}
"""By a digest of where and for whom: a token, and when it expires. For this process only."""
_lock = threading.Lock()


def _token(found: Signature, scheme: dict[str, Any], credential: str, value: str, ask: AskForToken) -> str:
    """The token itself, or one that the token server gives for a client's id and secret, written `id:secret`."""
    flows = scheme.get("flows") if scheme.get("type") == "oauth2" else None
    flow = flows.get("clientCredentials") if isinstance(flows, dict) else None
    client, colon, secret = value.partition(":")
    if not isinstance(flow, dict) or not colon:
        return value
    _learn(found.secrets, secret)
    scope = referenced.secret(f"{PREFIX}{credential}_SCOPE")
    url = str(flow.get("tokenUrl", ""))
    key = hashlib.sha256("\0".join((url, value, scope)).encode()).hexdigest()
    with _lock:
        token, until = _tokens.get(key, ("", 0.0))
    if time.monotonic() < until:
        found.renewable.append(key)
    else:
        token = _new_token(url, client, secret, scope, key, ask)
    _learn(found.secrets, token)
    return token


def _new_token(url: str, client: str, secret: str, scope: str, key: str, ask: AskForToken) -> str:
    form = {"grant_type": "client_credentials", **({"scope": scope} if scope else {})}
    pair = f"{quote(client, safe='')}:{quote(secret, safe='')}"
    answer = ask(url, form, f"Basic {base64.b64encode(pair.encode()).decode()}")
    token = answer.get("access_token")
    if not isinstance(token, str) or not token or not token.isascii() or not token.isprintable():
        raise ToolError("The token server gave no token, so nothing was sent. A person must check it.")
    lasts = answer.get("expires_in", _UNSAID)
    seconds = min(lasts, _LONGEST) if isinstance(lasts, int | float) and not isinstance(lasts, bool) else _UNSAID
    with _lock:
        _tokens[key] = (token, time.monotonic() + max(0.0, seconds - _EARLIER))
    return token


def forget(keys: Iterable[str]) -> None:
    """Forget tokens that a server refused, so that new ones are fetched."""
    with _lock:
        for key in keys:
            _tokens.pop(key, None)


# --- Nothing secret is kept --------------------------------------------------------------------


def _learn(secrets: set[str], *values: str) -> None:
    secrets.update(filter(None, values))


def redacted(value: Any, secrets: Collection[str]) -> Any:
    """The same value without the secrets in it, wherever they occur and however they are written."""
    if not secrets:
        return value
    if isinstance(value, str):
        for secret in sorted(secrets, key=len, reverse=True):
            value = _written(secret).sub(REDACTED, value) if len(secret) >= _SHORTEST else value
        return value
    if isinstance(value, int) and len(str(value)) >= _SHORTEST and str(value) in secrets:
        return REDACTED
    if isinstance(value, list):
        return [redacted(item, secrets) for item in value]
    if isinstance(value, dict):
        return {redacted(key, secrets): redacted(item, secrets) for key, item in value.items()}
    return value


@functools.lru_cache(maxsize=256)
def _written(secret: str) -> re.Pattern[str]:
    """A secret as servers write it: unchanged, or escaped for an address, JSON or HTML, partly or more than once."""
    return re.compile("".join(re.escape(one) if one.isalnum() or one in "-._~" else _escaped(one) for one in secret))


def _escaped(character: str) -> str:
    """One character in all its forms. Each repetition is bounded, so that no text takes long to search."""
    code = ord(character)
    name = html.entities.codepoint2name.get(code, "apos" if character == "'" else "")
    forms = [
        rf"(?i:&(?:amp;){{0,7}}(?:#0{{0,7}}{code}|#x0{{0,7}}{code:x}{f'|{name}' if name else ''});)",
        rf"(?i:%(?:25){{0,7}}{code:02x})",
        rf"(?i:\\{{1,7}}+u{code:04x})",
        r"\\{1,2}" if character == "\\" else rf"\\{{0,7}}+{re.escape(character)}",
    ]
    return f"(?:{'|'.join(forms)})"
