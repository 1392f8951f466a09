"""A mail is sent in good time or not at all, however slow its server is."""

import smtplib
import socketserver
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.mail import EmailMessage
from django.utils.module_loading import import_string

from agentapp.settings import mailer
from approvals import mail, smtp
from approvals.channels.base import ChannelError

ADDRESSES = [f"person{number}@example.test" for number in range(60)]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Slow(socketserver.ThreadingTCPServer):
    """A mail server that takes some seconds of the clock for each address."""

    allow_reuse_address = daemon_threads = True

    def __init__(self, clock: Clock) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.clock = clock
        self.takes = 0.0
        self.drips = b""
        self.drips_bytes, self.drip_takes = 20_000, 0.0
        self.long_at = ""
        self.addresses: list[str] = []
        self.mails = 0


class _Answers(socketserver.StreamRequestHandler):
    server: Slow

    def handle(self) -> None:
        self.say("220 here")
        for line in self.rfile:
            verb = line.split()[0].decode().upper()
            if verb == "DATA":
                self.say("354 go on")
                while self.rfile.readline() != b".\r\n":
                    pass
                self.server.mails += 1
            elif verb == "RCPT":
                self.server.addresses.append(line.decode())
                self.server.clock.now += self.server.takes
                if self.server.drips:
                    self.drip()
                    return
            answer = "221 bye" if verb == "QUIT" else "250 ok"
            self.say(answer + "!" * smtplib._MAXLINE if verb == self.server.long_at else answer)

    def drip(self) -> None:
        """More than anybody reads at once, bit by bit, to the end or until nobody is listening."""
        with suppress(OSError):
            for _ in range(self.server.drips_bytes // len(self.server.drips)):
                self.server.clock.now += self.server.drip_takes
                self.wfile.write(self.server.drips)
            self.say("250 ok")

    def say(self, answer: str) -> None:
        self.wfile.write(f"{answer}\r\n".encode())


@pytest.fixture
def slow(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    clock = Clock()
    monkeypatch.setattr(smtp, "monotonic", clock, raising=False)
    with Slow(clock) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        options = {"host": "127.0.0.1", "port": server.server_address[1], "timeout": 5}
        settings.MAILERS = {"default": {"BACKEND": mailer("there")["BACKEND"], "OPTIONS": options}}
        yield server
        server.shutdown()


def test_a_mail_to_many_at_a_server_that_takes_its_time_is_given_up_before_another_worker_sends_it(slow: Slow) -> None:
    slow.takes = 11
    with pytest.raises(ChannelError, match="not within 240 s") as caught:
        mail.send("test", {"person": User(username="mia")}, ["desk@example.test"], ADDRESSES)
    assert not caught.value.permanent
    assert slow.mails == 0
    assert slow.clock.now < 300


@pytest.mark.parametrize("drips", [b"250-still at it\r\n", b"2"])
def test_an_answer_that_does_not_end_is_given_up_like_many_slow_ones(slow: Slow, drips: bytes) -> None:
    # From the first byte on: what is taken in one read is then never a line that is too long.
    slow.drips, slow.drip_takes = drips, smtp.SEND_WITHIN_SECONDS
    with pytest.raises(ChannelError, match="closed: not within 240 s") as caught:
        mail.send("test", {"person": User(username="mia")}, ["desk@example.test"])
    assert not caught.value.permanent
    assert slow.mails == 0


def test_an_answer_that_comes_quickly_and_does_not_end_is_not_kept_in_memory(slow: Slow) -> None:
    slow.drips, slow.drips_bytes = b"250-" + b"x" * 1000 + b"\r\n", 2 * smtp.MAX_ANSWERS_BYTES
    with pytest.raises(ChannelError, match="closed: more than 1048576 bytes") as caught:
        mail.send("test", {"person": User(username="mia")}, ["desk@example.test"])
    assert not caught.value.permanent
    assert slow.mails == 0


@pytest.mark.parametrize("at", ["MAIL", "RCPT", "DATA"])
def test_an_answer_in_a_line_that_is_too_long_is_no_refusal_and_another_try_may_help(slow: Slow, at: str) -> None:
    slow.long_at = at
    with pytest.raises(ChannelError, match="a line of an answer was too long") as caught:
        mail.send("test", {"person": User(username="mia")}, ["desk@example.test"])
    assert not caught.value.permanent
    assert "500" not in str(caught.value)  # no code that the server has not said


def test_a_mail_that_was_taken_is_not_sent_again_because_the_server_says_goodbye_at_length(slow: Slow) -> None:
    slow.long_at = "QUIT"
    mail.send("test", {"person": User(username="mia")}, ["desk@example.test"])
    assert slow.mails == 1


def test_a_mail_to_many_arrives_in_time(slow: Slow) -> None:
    slow.takes = 3
    mail.send("test", {"person": User(username="mia")}, ["desk@example.test"], ADDRESSES)
    assert (slow.mails, len(slow.addresses)) == (1, 61)


def test_what_was_taken_at_the_last_moment_was_sent(slow: Slow) -> None:
    slow.takes = smtp.SEND_WITHIN_SECONDS - 1
    message = EmailMessage("Subject", "Text", "from@example.test", ["desk@example.test"])
    assert message.send() == 1
    assert slow.mails == 1


def test_an_encrypted_connection_is_given_up_as_well() -> None:
    backend = import_string(str(mailer("there")["BACKEND"]))(host="there", use_ssl=True, alias="default")
    assert issubclass(backend.connection_class, smtp._InTime)
