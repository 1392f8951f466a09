"""One notification on its way: what it says, to whom, and whether it is still for them. Each function raises
ChannelError.
"""

import uuid
from collections.abc import Collection, Mapping
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.dateformat import format as written

from approvals import absences, channels, entitlement, lens, mail, outcomes
from approvals.channels.base import ChannelError, Message
from approvals.follow_ups import WHILE_WAITING
from approvals.manners import Manners, manners
from approvals.models import Approval, Channel, Notification
from approvals.standing import Refusal, Right, may_decide, right_of
from approvals.visible import visible

Kind = Notification.Kind
OVER = "Not sent: the request no longer waits."
# The templates of a title and of the text below it.
type Words = tuple[str, str]
CHANNEL: Words = ("chat_subject", "chat")
PERSON: Words = ("person_subject", "person_chat")
BECAME: Words = ("became_subject", "became_chat")
# What is needed to know who reads a notification.
_OF_READERS = (
    "kind", "user_id", "channel_id", "approval__kind", "approval__tool", "approval__risk",
    "approval__excluded", "approval__starter_id", "approval__starter_excluded",
)  # fmt: skip


def send(notification: Notification) -> str:
    """Send it, or change the message that it follows. Returns its receipt."""
    if notification.channel is not None and not notification.channel.active:
        raise _not_sent("the channel is switched off.")
    if notification.follows is None:
        over_channel = notification.user is None
        return to_channel(notification) if over_channel else to_person(notification)
    return _change(notification) if _is_edited(notification) else _come_after(notification)


def to_channel(notification: Notification) -> str:
    """Tell a channel that a request waits."""
    if notification.approval.state not in Approval.UNDECIDED:
        raise ChannelError(OVER, permanent=True)
    assert notification.channel is not None
    return channels.open_channel(notification.channel).send(message_of(notification))


def to_person(notification: Notification) -> str:
    """Tell one person, or their deputy."""
    approval, user = notification.approval, notification.user
    assert user is not None
    if notification.kind in WHILE_WAITING and approval.state not in Approval.UNDECIDED:
        raise ChannelError(OVER, permanent=True)
    reader = reader_for(notification)
    right = right_of(reader, approval) if notification.kind in WHILE_WAITING else Right()
    if isinstance(right, Refusal):
        raise _not_sent(f"{reader.get_username()} has no say in it. {right.message}")
    if notification.kind not in WHILE_WAITING:
        _needs_sight(reader, approval)
    one = _reachable(reader, notification.channel)
    context = _context(notification, one) | {
        "instead_of": user if reader != user else None,
        "lender": right.lender,
        "comment": notification.comment,
    }
    if notification.channel is None:
        return mail.send("person", context, [reader.email], thread=mail.Thread(mail.own_id(notification.pk)))
    message = _message(notification, PERSON, context, to=one.chat_name)
    return channels.open_channel(notification.channel).send(message)


def message_of(notification: Notification) -> Message:
    """What a channel says about a waiting request."""
    return _message(notification, CHANNEL, _context(notification, Manners()))


def reader_for(notification: Notification) -> User:
    """Who reads what is for one person. A mention is for them, whoever looks after their queue."""
    assert notification.user is not None
    if notification.kind == Kind.MENTIONED:
        return notification.user
    return reader_of(notification.user, notification.approval, notification.channel)


def reader_of(user: User, approval: Approval, channel: Channel | None = None) -> User:
    """The person themself or, while they are away, their deputy, if that one may decide about it and be reached."""
    deputy = absences.standing_in([user.pk]).get(user.pk)
    if deputy is None:
        return user
    return deputy if _reads_instead(deputy, approval, channel is None or _manners_of(deputy).chat_name) else user


def _reads_instead(deputy: User, approval: Approval, can_be_told: object, is_member: bool | None = None) -> bool:
    return bool(can_be_told) and may_decide(deputy, approval, is_member) is None


def read_by(readers: Collection[int], away: QuerySet[Notification], deputies: Mapping[int, User]) -> list[uuid.UUID]:
    """Of the messages for people who are away, the keys of those that one of these readers gets; like `reader_for`, for
    many at once.

    Four queries, and more only for a deputy who would decide by a lent right.
    """
    ways = manners({deputy.pk for deputy in deputies.values()})
    memberships = User.groups.through.objects.filter(user__in=ways).values_list("user_id", "group_id")
    members = {(user_id, group_id) for user_id, group_id in memberships}
    read = away.select_related("approval").prefetch_related("approval__groups").only(*_OF_READERS)
    found = []
    for row in read:
        assert row.user_id is not None
        deputy = deputies[row.user_id]
        is_member = any((deputy.pk, group.pk) in members for group in row.approval.groups.all())
        can_be_told = row.channel_id is None or ways[deputy.pk].chat_name
        is_theirs = row.kind != Kind.MENTIONED and _reads_instead(deputy, row.approval, can_be_told, is_member)
        if (deputy.pk if is_theirs else row.user_id) in readers:
            found.append(row.pk)
    return found


def send_test(user: User) -> None:
    """Send a person a test mail."""
    mail.send("test", {"person": user}, [user.email])


def send_chat_test(user: User, channel: Channel) -> None:
    """Send a person a test message over the channel for individual people."""
    title = mail.line("test_subject", {"workspace": settings.WORKSPACE_NAME, "way": "chat"})
    body = render_to_string("notifications/test.txt", {"person": user, "way": "Chat"}).strip()
    to = _reachable(user, channel).chat_name
    link = f"{settings.BASE_URL}/settings/notifications/"
    message = Message(Notification(), title, body, link, to=to)
    channels.open_channel(channel).send(message)


def _change(notification: Notification) -> str:
    """Change the message to say what has become of its request by now."""
    approval, followed, channel = notification.approval, notification.follows, notification.channel
    assert followed is not None
    assert channel is not None
    if notification.user is None:
        context, words = _context(notification, Manners()), CHANNEL
    else:
        reader = reader_of(notification.user, approval, channel)
        _needs_sight(reader, approval)
        context, words = _context(followed, _manners_of(reader)), PERSON
    became = outcomes.of(approval, notification.created_at)
    message = _message(notification, words, context, became=_said(became), over=became.over)
    channels.open_editing(channel).edit(message, followed.receipt)
    # Another worker changing it at the same time may have been first with newer words.
    if Approval.objects.only("version").get(pk=approval.pk).version != approval.version:
        raise ChannelError("The request has changed again, and its message will follow.")
    return followed.receipt


def _come_after(notification: Notification) -> str:
    """Say in a new message what became of a request, if its readers do not know yet."""
    approval, followed = notification.approval, notification.follows
    assert followed is not None
    became = outcomes.of(approval, notification.created_at)
    thread = Notification.objects.filter(
        kind=Kind.FOLLOWED, approval=approval, channel=notification.channel_id, user=notification.user_id
    ).order_by("-version")
    newer = thread.filter(version__gt=notification.version).exists()
    if newer or became.outcome != notification.outcome:
        raise _not_sent("the request has changed since.")
    told = thread.filter(state=Notification.State.SENT).values_list("outcome", flat=True).first()
    if became.outcome == (told or Approval.State.PENDING):
        raise _not_sent("its readers have already been told.")
    more: dict[str, Any] = {
        "became": _said(became),
        "over": became.over,
        "answers": followed.receipt or mail.own_id(followed.pk),
    }
    if notification.user is None:
        assert notification.channel is not None
        message = _message(notification, BECAME, _context(notification, Manners()), **more)
        return channels.open_channel(notification.channel).send(message)
    reader = reader_of(notification.user, approval, notification.channel)
    if reader.pk in outcomes.deciders(approval):
        raise _not_sent("its reader made the decision.")
    _needs_sight(reader, approval)
    one = _reachable(reader, notification.channel)
    context = _context(followed, one) | {"became": more["became"], "title": approval.title}
    if notification.channel is not None:
        message = _message(notification, BECAME, context, to=one.chat_name, **more)
        return channels.open_channel(notification.channel).send(message)
    own = mail.Thread(mail.own_id(notification.pk), more["answers"], "person")
    return mail.send("became", context, [reader.email], thread=own)


def _message(notification: Notification, words: Words, context: dict[str, Any], **more: Any) -> Message:
    body = lens.told(render_to_string(f"notifications/{words[1]}.txt", context).strip(), [notification.approval])
    return Message(notification, mail.line(words[0], context), visible(body), context["link"], **more)


def _context(notification: Notification, one: Manners) -> dict[str, Any]:
    approval = notification.approval
    return {
        "workspace": settings.WORKSPACE_NAME,
        "approval": approval,
        "kind": notification.kind,
        "shows": one.shows_arguments,
        "title": approval.shown_title,
        "link": mail.link_to(approval),
    }


def _said(became: outcomes.Became) -> str:
    at = f", {written(timezone.localtime(became.at), 'Y-m-d H:i e')}" if became.at else ""
    return visible(f"{became.words}{at}")


def _is_edited(notification: Notification) -> bool:
    channel, followed = notification.channel, notification.follows
    return channel is not None and followed is not None and bool(followed.receipt) and channels.edits(channel.kind)


def _reachable(reader: User, channel: Channel | None) -> Manners:
    """How somebody wants to be told. Raises ChannelError if they cannot be reached."""
    one = _manners_of(reader)
    if not reader.is_active or (channel is None and not reader.email):
        raise _not_sent(f"{reader.get_username()} is switched off or has no address.")
    if channel is not None and not channel.personal:
        raise _not_sent("the channel is no longer for individual people.")
    if channel is not None and not one.chat_name:
        raise _not_sent(f"{reader.get_username()} has not given their name there.")
    return one


def _needs_sight(reader: User, approval: Approval) -> None:
    if not entitlement.visible(reader).filter(pk=approval.pk).exists():
        raise _not_sent(f"{reader.get_username()} may no longer see the request.")


def _manners_of(user: User) -> Manners:
    return manners([user.pk]).get(user.pk, Manners())


def _not_sent(why: str) -> ChannelError:
    """There is no longer a reason to send it, which is nobody's fault."""
    return ChannelError(f"Not sent: {why}", permanent=True)
