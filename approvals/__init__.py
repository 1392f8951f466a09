"""Rules, approvals, decisions, channels and the ledger.

A leaf: it imports nothing else of the project and knows nothing of runs. Its pages are in `agentapp/console/`.
"""
