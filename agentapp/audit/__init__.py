"""The audit trail: what is asked of the ledger in one line, found, and said in words."""
