"""The only writer of Approval and Decision, and the only creator of Notification: a file per kind of transition.

Each function is one transition: it changes rows under a condition, counts them, and records its event. The caller holds
the lock on the run's row, so that a decision and a run about to wait cannot miss each other, and is inside
`ledger.transaction()`.
"""

from approvals.accepting import Incoming
from approvals.decisions.asking import answer, ask, go_on
from approvals.decisions.closing import ask_again, exclude, expire, lapse, supersede, withdraw
from approvals.decisions.deciding import Taken, decide, undo
from approvals.decisions.erasing import erase
from approvals.decisions.escalating import breach, escalate
from approvals.decisions.requesting import request
from approvals.decisions.using import consume, settle

__all__ = [
    "Incoming", "Taken", "answer", "ask", "ask_again", "breach", "consume", "decide", "erase", "escalate", "exclude",
    "expire", "go_on", "lapse", "request", "settle", "supersede", "undo", "withdraw",
]  # fmt: skip
