"""Django's mail over SMTP, given up as a whole in good time.

A time-out alone is for one answer: a server that takes its time with each of many addresses would be waited for until
another worker takes the same mail for one that nobody sends, and sends it as well.
"""

import smtplib
from time import monotonic
from typing import Any

from django.core.mail.backends import smtp

# From the first byte to the last. A claim lasts for ten minutes, and a roundup may be two mails.
SEND_WITHIN_SECONDS = 240.0


class _InTime:
    """A connection that asks nothing more once its time is over."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._until = monotonic() + SEND_WITHIN_SECONDS
        super().__init__(*args, **options)

    def putcmd(self, cmd: str, args: str = "") -> None:
        if monotonic() >= self._until:
            self.close()  # type: ignore[attr-defined]
            raise smtplib.SMTPServerDisconnected(f"not within {SEND_WITHIN_SECONDS:.0f} s")
        super().putcmd(cmd, args)  # type: ignore[misc]


class _Plain(_InTime, smtplib.SMTP):
    pass


class _Encrypted(_InTime, smtplib.SMTP_SSL):
    pass


class EmailBackend(smtp.EmailBackend):
    @property
    def connection_class(self) -> type[smtplib.SMTP]:
        return _Encrypted if self.use_ssl else _Plain
