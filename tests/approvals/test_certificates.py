"""A server this machine does not trust is not asked, whatever the environment says."""

import datetime
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from approvals import certificates


@pytest.fixture
def vouched_by_itself(tmp_path: Path) -> Path:
    """A certificate for 127.0.0.1 and its key, not signed by an authority."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "here")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    file = tmp_path / "here.pem"
    file.write_bytes(made.public_bytes(serialization.Encoding.PEM) + key.private_bytes(*pem))
    return file


@pytest.fixture
def address(vouched_by_itself: Path) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            """A client that does not trust it hangs up."""

    server = Quiet(("127.0.0.1", 0), Handler)
    shown = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    shown.load_cert_chain(vouched_by_itself)
    server.socket = shown.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield f"https://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join()


def test_who_trusts_the_certificate_is_answered(address: str, vouched_by_itself: Path) -> None:
    """So that the next test does not pass because the server answers nobody."""
    with httpx2.Client(verify=ssl.create_default_context(cafile=str(vouched_by_itself)), trust_env=False) as client:
        assert client.get(address).status_code == 204


def test_a_server_for_which_nobody_vouches_is_not_asked_though_the_environment_names_it(
    address: str, vouched_by_itself: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(vouched_by_itself))
    certificates.trusted.cache_clear()
    with (
        httpx2.Client(verify=certificates.trusted(), trust_env=False) as client,
        pytest.raises(httpx2.ConnectError, match="CERTIFICATE_VERIFY_FAILED"),
    ):
        client.get(address)


def test_the_authorities_are_read_once() -> None:
    assert certificates.trusted() is certificates.trusted()
