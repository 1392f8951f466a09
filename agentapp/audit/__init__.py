"""The audit trail: searching the ledger with one line, and putting what was found into words."""
