"""WSGI entry point, for servers without ASGI. The live stream needs ASGI."""

import os

from django.core.wsgi import get_wsgi_application

from agentapp import postgresql, secret_key

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentapp.settings")

application = get_wsgi_application()
secret_key.demand()
postgresql.limit_statements()
