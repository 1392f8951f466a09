"""Fixtures of tools: MCP servers."""

from tests.mcp_servers import kept_peers, peer, scripted, served, started

__all__ = ["kept_peers", "peer", "scripted", "served", "started"]
