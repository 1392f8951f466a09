"""Where each value of a proposed call came from: people, the customer, our systems, outside, or the model. Pure.

The record decides: who wrote a message, how far a tool's result can be trusted. Values are then looked for in what was
recorded, however they are spelled there. A value that is found nowhere was made up by the model.
"""

from agentapp.provenance.handed import handed_to
from agentapp.provenance.origins import (
    NOT_LOOKED_THROUGH,
    Origin,
    after_edit,
    by_argument,
    from_outside,
    origins_of,
)
from agentapp.provenance.paths import parts_of, path_of
from agentapp.provenance.people import asked, with_people
from agentapp.provenance.sources import Past, Source, Sources, sources_of

__all__ = [
    "NOT_LOOKED_THROUGH",
    "Origin",
    "Past",
    "Source",
    "Sources",
    "after_edit",
    "asked",
    "by_argument",
    "from_outside",
    "handed_to",
    "origins_of",
    "parts_of",
    "path_of",
    "sources_of",
    "with_people",
]
