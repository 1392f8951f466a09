"""Tools of OpenAPI documents, picked by a person: a document and the existing rows → a plan → rows.

An import never makes a tool less careful: the effect class that somebody set, or that was guessed before, can only
rise. A changed contract is a new version, and requests about the old one are set aside.
"""
