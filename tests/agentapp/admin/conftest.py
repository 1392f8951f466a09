"""Pages of the admin that reach out are tried with what they reach."""

from tests.agentapp.webhooks.conftest import endpoint, receiver  # noqa: F401
