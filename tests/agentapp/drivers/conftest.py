"""Models here are really asked, over the loopback interface."""

from tests.wire import provider

__all__ = ["provider"]
