"""Django's PostgreSQL backend, with the connection settings that pages need. `connections` names it as ENGINE."""
