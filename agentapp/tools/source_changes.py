"""Tells a worker, by its task's name, that the tools of a source have changed."""

from approvals import broker

REFRESH_SOURCE = "agentapp.refreshing.refresh_source"


def source_changed(source: str) -> None:
    """Have a worker look at a source's tools. Never raises: sources are looked at regularly anyway."""
    broker.tell(REFRESH_SOURCE, (source,), about=f"that the tools of {source} have changed", priority=broker.WORK)
