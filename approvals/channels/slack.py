"""Slack, through its own API, so that a message can be changed once its request is decided.

Nothing in a message is read as Slack's markup. The blocks are rich text, which Slack takes literally, and the fallback
line has its control characters escaped. The one button is a link.
"""

import json
import re
import time
from typing import Annotated, Any, ClassVar, Self

import httpx2
from pydantic import Field, ValidationInfo, model_validator

from approvals import certificates
from approvals.channels import credentials
from approvals.channels.base import ChannelConfig, ChannelError, Message, is_personal

# Slack's answers for which trying again would not help, and what they mean.
_FOR_GOOD = {
    "invalid_auth": "Slack does not know this token.",
    "not_authed": "Slack received no token.",
    "account_inactive": "The token's account at Slack was removed.",
    "token_revoked": "The token was revoked at Slack.",
    "token_expired": "The token has expired at Slack.",
    "missing_scope": "The app at Slack lacks the scope chat:write.",
    "channel_not_found": "Slack has no such channel or person, or the app cannot see it.",
    "user_not_found": "Slack has no such person.",
    "not_in_channel": "The app is not in this channel. Invite it there.",
    "is_archived": "The channel is archived at Slack.",
    "restricted_action": "This workspace does not let the app post there.",
    "invalid_blocks": "Slack did not understand the message.",
    "msg_too_long": "The message is too long for Slack.",
    # There is no longer a reason to send it.
    "message_not_found": "Not sent: the message no longer exists.",
    "cant_update_message": "Not sent: Slack does not let this message be changed.",
    "edit_window_closed": "Not sent: this workspace does not let messages this old be changed.",
}
_CODE = re.compile(r"[a-z_]{1,60}")
_ESCAPED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_MAX_TEXT = 2500
_OK, _TOO_MANY = 200, 429
_LONGEST_WAIT = 3600


class SlackConfig(ChannelConfig):
    """The credential that holds the app's token (`xoxb-…`), and the channel's id. For a personal channel, people give
    their own ids.
    """

    for_people: ClassVar[bool] = True
    credential: credentials.CredentialName
    channel: Annotated[str, Field(pattern=r"^([CGD][A-Z0-9]{2,40})?$")] = ""

    @model_validator(mode="after")
    def _leads_somewhere(self, info: ValidationInfo) -> Self:
        if is_personal(info) and self.channel:
            raise ValueError("a channel for individual people has no channel of its own: leave 'channel' out")
        if not is_personal(info) and not self.channel:
            raise ValueError("name the id of a channel in 'channel', as in C0123456789")
        return self


class SlackChannel:
    config_model: ClassVar[type[ChannelConfig]] = SlackConfig
    edits: ClassVar[bool] = True
    # Where Slack's API is, and how long and how large its answer may be.
    api: ClassVar[str] = "https://slack.com/api"
    answers_within_seconds: ClassVar[float] = 10.0
    max_answer_bytes: ClassVar[int] = 64 * 1024

    def __init__(self, config: SlackConfig) -> None:
        self.config = config

    def send(self, message: Message) -> str:
        said = _said(message) | {"channel": message.to or self.config.channel, "unfurl_links": False}
        answer = self._call("chat.postMessage", said | {"unfurl_media": False, "mrkdwn": False})
        # Only this answer says the id of the conversation with a person, which identifies the message.
        receipt = f"{answer.get('channel')}:{answer.get('ts')}"
        return receipt if re.fullmatch(r"[A-Z0-9]+:[0-9.]+", receipt) and len(receipt) <= 200 else ""

    def edit(self, message: Message, receipt: str) -> None:
        channel, _, ts = receipt.partition(":")
        self._call("chat.update", _said(message) | {"channel": channel, "ts": ts, "parse": "none"})

    def _call(self, method: str, content: dict[str, Any]) -> dict[str, Any]:
        """Call Slack and read its answer. Raises ChannelError, which never contains the token."""
        token = credentials.read(self.config.credential)
        if not token.isascii() or any(part.isspace() for part in token):
            name = f"{credentials.PREFIX}{self.config.credential}"
            raise ChannelError(f"{name} holds no token. Nothing was sent.", permanent=True)
        status, wait, body = self._post(f"{self.api}/{method}", content, token)
        if status == _TOO_MANY:
            seconds = min(int(wait), _LONGEST_WAIT) if wait.isdecimal() else 0
            raise ChannelError(f"Slack asks for fewer messages{f', and none for {seconds} s' if seconds else ''}.")
        try:
            answer = json.loads(body)
        except ValueError:
            answer = None
        if status != _OK or not isinstance(answer, dict):
            raise ChannelError(f"Slack answered {status}, which its API never does.")
        if answer.get("ok") is not True:
            raise _refused(answer.get("error"))
        return answer

    def _post(self, url: str, content: dict[str, Any], token: str) -> tuple[int, str, bytes]:
        """The status, how long Slack wants us to wait, and the body. Redirects are not followed."""
        until, found = time.monotonic() + self.answers_within_seconds, b""
        headers = {"Authorization": f"Bearer {token}", "Accept-Encoding": "identity"}
        try:
            with (
                httpx2.Client(
                    verify=certificates.trusted(),
                    timeout=self.answers_within_seconds,
                    trust_env=False,
                    follow_redirects=False,
                ) as client,
                client.stream("POST", url, json=content, headers=headers) as response,
            ):
                for part in response.iter_raw():
                    found += part
                    if len(found) > self.max_answer_bytes:
                        raise ChannelError(f"Slack answered with more than {self.max_answer_bytes} bytes.")
                    if time.monotonic() > until:
                        raise ChannelError(f"Slack took longer than {self.answers_within_seconds:g} s to answer.")
                return response.status_code, response.headers.get("Retry-After", ""), found
        except httpx2.HTTPError as error:
            raise ChannelError(f"Slack could not be reached ({type(error).__name__}).") from None


def _refused(code: Any) -> ChannelError:
    known = code if isinstance(code, str) and _CODE.fullmatch(code) else "no reason"
    if known == "ratelimited":
        return ChannelError("Slack asks for fewer messages.")
    words = _FOR_GOOD.get(known)
    return ChannelError(words or f"Slack did not accept the message ({known}).", permanent=words is not None)


def _said(message: Message) -> dict[str, Any]:
    """The message as blocks, and as the line that is read where blocks are not shown."""
    is_so_no_longer = message.over and not message.answers
    pieces = [_piece(message.title, strike=is_so_no_longer, bold=not is_so_no_longer)]
    if message.became:
        pieces.append(_piece(f"\n{message.became}", bold=True))
    if not message.over:
        pieces.append(_piece(f"\n{message.body}"))
    button = {
        "type": "button",
        "action_id": "open",
        "text": {"type": "plain_text", "text": "See it" if message.over else "See and decide"},
        "url": message.link,
    }
    line = f"{message.became}: {message.title}" if message.became else message.title
    return {
        "text": line[:_MAX_TEXT].translate(_ESCAPED),
        "blocks": [
            {"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": pieces}]},
            {"type": "actions", "elements": [button]},
        ],
    }


def _piece(text: str, **style: bool) -> dict[str, Any]:
    """Literal text: in rich text, nothing becomes a mention, a link or a style because of how it is written."""
    chosen = {name: True for name, on in style.items() if on}
    return {"type": "text", "text": text[:_MAX_TEXT]} | ({"style": chosen} if chosen else {})
