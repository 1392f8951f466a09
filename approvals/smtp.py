"""Django's mail over SMTP, with a time limit for the whole sending.

A time-out alone covers only the next answer. A server that is slow with each of many addresses, or with each line of an
answer, would be waited for until another worker thinks nobody sends the mail, and sends it too.
"""

import io
import smtplib
import socket
from collections.abc import Callable
from time import monotonic
from typing import Any

from django.core.mail.backends import smtp

# From the first byte to the last. A claim lasts for ten minutes, and a roundup may be two mails.
SEND_WITHIN_SECONDS = 240.0
# For all answers on one connection: smtplib keeps the lines of each until its last.
MAX_ANSWERS_BYTES = 1024 * 1024


class _Answers(io.RawIOBase):
    """What a server sends, within the limits of time and size."""

    def __init__(self, sent: io.RawIOBase, look: Callable[[], None]) -> None:
        self._sent, self._look, self._read = sent, look, 0

    def readable(self) -> bool:
        return True

    def readinto(self, room: Any) -> int | None:
        self._look()
        read = self._sent.readinto(room)
        self._read += read or 0
        if self._read > MAX_ANSWERS_BYTES:
            raise OSError(f"more than {MAX_ANSWERS_BYTES} bytes of answers")
        return read

    def close(self) -> None:
        self._sent.close()
        super().close()


class _InTime:
    """A connection that sends and reads nothing more once its time is over."""

    sock: socket.socket | None
    file: io.BufferedReader | None

    def __init__(self, *args: Any, **options: Any) -> None:
        self._until = monotonic() + SEND_WITHIN_SECONDS
        super().__init__(*args, **options)

    def putcmd(self, cmd: str, args: str = "") -> None:
        try:
            self._look()
        except TimeoutError as error:
            self.close()  # type: ignore[attr-defined]
            raise smtplib.SMTPServerDisconnected(str(error)) from error
        super().putcmd(cmd, args)  # type: ignore[misc]

    def getreply(self) -> tuple[int, bytes]:
        if self.file is None and self.sock is not None:
            self.file = io.BufferedReader(_Answers(self.sock.makefile("rb", buffering=0), self._look))
        try:
            return super().getreply()  # type: ignore[misc,no-any-return]
        except smtplib.SMTPResponseException as error:
            # smtplib's own words for a line it does not read to its end: the server has said nothing of the kind.
            raise smtplib.SMTPServerDisconnected("Connection closed: a line of an answer was too long") from error

    def _look(self) -> None:
        if monotonic() >= self._until:
            raise TimeoutError(f"not within {SEND_WITHIN_SECONDS:.0f} s")


class _Plain(_InTime, smtplib.SMTP):
    pass


class _Encrypted(_InTime, smtplib.SMTP_SSL):
    pass


class EmailBackend(smtp.EmailBackend):
    @property
    def connection_class(self) -> type[smtplib.SMTP]:
        return _Encrypted if self.use_ssl else _Plain
