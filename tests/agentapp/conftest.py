"""Fixtures of the whole tree: a desk whose tools fail and stop when told to, a provider and MCP servers."""

from tests.agentapp.pooled import other_server, server, small_pool
from tests.agentapp.stopping import desk
from tests.mcp_servers import kept_peers, peer, scripted, served, started
from tests.wire import provider

__all__ = [
    "desk", "kept_peers", "other_server", "peer", "provider", "scripted", "served", "server", "small_pool", "started",
]  # fmt: skip
