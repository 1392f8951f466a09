"""Tells other programs what happened, following Standard Webhooks: the only writer of WebhookProgress and
WebhookDelivery.

Transitions do nothing extra. The ledger is read afterwards, from where each endpoint was last told, and every event
that the endpoint wants becomes a delivery. Each delivery is sent at least once.
"""

from agentapp.webhooks.collecting import collect
from agentapp.webhooks.sending import due_endpoints, forget_old, give_up, redeliver, see_to, send_due, test

__all__ = ["collect", "due_endpoints", "forget_old", "give_up", "redeliver", "see_to", "send_due", "test"]
