"""Telling programs elsewhere what happened, by the rules of Standard Webhooks: the only writer of WebhookProgress and
WebhookDelivery.

Nothing is added to what happens here: the ledger is read afterwards, from where each endpoint was told last, and every
event that it wants becomes a delivery. Each is sent at least once.
"""

from agentapp.webhooks.collecting import collect
from agentapp.webhooks.sending import due_endpoints, forget_old, give_up, redeliver, see_to, send_due, test

__all__ = ["collect", "due_endpoints", "forget_old", "give_up", "redeliver", "see_to", "send_due", "test"]
