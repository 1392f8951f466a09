"""Django's way to PostgreSQL, with what pages need of each connection. Named as ENGINE by `connections`."""
