"""Sends each checkpoint of the ledger to an outside address, which then holds what nobody here can change."""

from django.conf import settings

from agentapp.tools import outbound
from approvals.models import Checkpoint
from approvals.proof import anchors

ANSWERS_WITHIN_SECONDS = 10.0
_MAX_ANSWER_BYTES = 2000
_HEADERS = {"Content-Type": "application/json", "User-Agent": "Countersign-Checkpoints/1"}


def send_due() -> int:
    """Post the checkpoints the address does not have yet, oldest first, until one fails. Returns how many it took."""
    address = settings.LEDGER.anchor_url
    if not address:
        return 0
    sent = 0
    for checkpoint in anchors.waiting(anchors.URL):
        problem = _problem_of_sending(address, checkpoint)
        if problem:
            anchors.failed(anchors.URL, problem)
            break
        anchors.noted(anchors.URL, checkpoint.number)
        sent += 1
    return sent


def _problem_of_sending(address: str, checkpoint: Checkpoint) -> str:
    """Empty: the server took it. The rest of its answer is not repeated."""
    outside = outbound.Outside(networks=tuple(settings.OUTBOUND_NETWORKS))
    body = anchors.line(checkpoint).encode()
    try:
        answer = outbound.post(address, outside, body, _HEADERS, _MAX_ANSWER_BYTES, ANSWERS_WITHIN_SECONDS)
    except outbound.OutboundRefused as refused:
        return str(refused)
    return "" if 200 <= answer.status < 300 else f"The server answered {answer.status}."
