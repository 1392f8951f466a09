"""Rules, approvals, decisions, channels and the ledger.

A leaf: it imports nothing of the project and knows no run. Its pages are in `agentapp/console/`.
"""
