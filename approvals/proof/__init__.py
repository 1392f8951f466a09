"""Makes the ledger provable to somebody who trusts neither the database nor this program."""
