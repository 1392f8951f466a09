"""The key that signs sessions and encrypts what is kept secret. The one in the source is for development."""

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured


def is_published() -> bool:
    return bool(settings.SECRET_KEY == settings.DEFAULT_SECRET_KEY)


def demand() -> None:
    """For a process that is about to serve. Raises ImproperlyConfigured if the key is the published one.

    Django's checks stop only commands such as migrate; a setting that is lost later is noticed here.
    """
    if is_published() and not settings.DEBUG:
        raise ImproperlyConfigured(
            "SECRET_KEY is not set, and the default key is in the published source: anybody can use it to sign in as "
            "anybody. Set SECRET_KEY or SECRET_KEY_FILE."
        )
