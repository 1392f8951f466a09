"""Tools of OpenAPI documents, picked by a person: a document and what is there already → a plan → rows.

Nothing an import does makes a tool less careful than it was: the effect class that somebody set, or that was guessed
before, only rises. A changed contract is a new version, and requests about the old one are set aside.
"""
