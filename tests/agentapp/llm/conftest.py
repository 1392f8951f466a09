"""Models are asked for real here, by way of the loopback interface."""

from tests.wire import provider

__all__ = ["provider"]
