"""A single sign-on provider on the loopback: real HTTP, one person, and the failures that providers have."""

import base64
import contextlib
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from django.test import Client

KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


@dataclass
class Provider:
    """Vouches for `person`. With `refuses` it sends everybody back with an error.

    It has people sign in again when asked to, unless it `remembers`, and says when they did, unless it is `silent`.
    """

    address: str = ""
    person: dict[str, Any] = field(default_factory=dict)
    refuses: dict[str, str] = field(default_factory=dict)
    token_fails: bool = False
    remembers: bool = False
    silent: bool = False
    signed_in_at: Any = 0
    asked: list[dict[str, str]] = field(default_factory=list)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def authorize(self, query: dict[str, str]) -> str:
        self.asked.append(query)
        if self.refuses:
            answer = self.refuses
        else:
            if not self.remembers:
                self.signed_in_at = int(time.time())
            code = secrets.token_urlsafe(16)
            self.codes[code] = query
            answer = {"code": code}
        return f"{query['redirect_uri']}?{urlencode({**answer, 'state': query['state']})}"

    def token(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        begun = self.codes.pop(form.get("code", ""), None)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(form.get("code_verifier", "").encode()).digest())
        if self.token_fails or begun is None or begun["code_challenge"] != challenge.rstrip(b"=").decode():
            return 400, {"error": "invalid_grant", "error_description": "The code is <b>used up</b>."}
        now = int(time.time())
        claims = {"iss": self.address, "aud": begun["client_id"], "iat": now, "exp": now + 60, **self.person}
        if "max_age" in begun and not self.silent:
            claims["auth_time"] = self.signed_in_at
        signed = jwt.encode(claims, KEY, algorithm="RS256", headers={"kid": "one"})
        return 200, {"access_token": "opaque", "token_type": "Bearer", "expires_in": 60, "id_token": signed}

    def configuration(self) -> dict[str, Any]:
        paths = {
            "authorization_endpoint": "/authorize", "token_endpoint": "/token",
            "userinfo_endpoint": "/userinfo", "jwks_uri": "/jwks",
        }  # fmt: skip
        return {"issuer": self.address, **{name: self.address + path for name, path in paths.items()}}


class _Answers(BaseHTTPRequestHandler):
    provider: Provider

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if parts.path == "/authorize":
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            self.send_response(302)
            self.send_header("Location", self.provider.authorize(query))
            self.end_headers()
            return
        found = {"/.well-known/openid-configuration": self.provider.configuration(), "/userinfo": self.provider.person}
        self._answer(200 if parts.path in found else 404, found.get(parts.path, {}))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self._answer(*self.provider.token({name: values[0] for name, values in parse_qs(body).items()}))

    def _answer(self, status: int, data: dict[str, Any]) -> None:
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextlib.contextmanager
def serving(settings: Any, **person: Any) -> Iterator[Provider]:
    """Run a provider, and register it with the product as `corp`."""
    provider = Provider(person={"sub": "7", **person})
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Answers", (_Answers,), {"provider": provider}))
    provider.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    app = {
        "provider_id": "corp", "name": "Corp", "client_id": "countersign", "secret": "kept",
        "settings": {"server_url": provider.address, "oauth_pkce_enabled": True, "verified_email": False},
    }  # fmt: skip
    settings.SOCIALACCOUNT_PROVIDERS = {"openid_connect": {"APPS": [app]}}
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def sign_in(client: Client, next: str = "") -> Any:
    """What a browser does: go to the provider, and come back with its answer."""
    import requests

    begun = client.get("/login/sso/corp/", {"next": next} if next else {})
    assert begun.status_code == 302, begun.content
    answered = requests.get(begun["Location"], allow_redirects=False, timeout=5)
    back = urlsplit(answered.headers["Location"])
    return client.get(f"{back.path}?{back.query}")
