"""Pages of the admin that connect to other systems are tested with those systems."""

from tests.agentapp.webhooks.conftest import endpoint, receiver  # noqa: F401
