"""Fixtures of the whole tree: a desk whose tools fail and stop when told to, and a provider on the loopback."""

from tests.agentapp.stopping import desk
from tests.wire import provider

__all__ = ["desk", "provider"]
