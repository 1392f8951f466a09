"""What this machine trusts when a server shows its certificate. Read once: that takes longer than most requests do."""

import functools
import ssl

import httpx2


@functools.cache
def trusted() -> ssl.SSLContext:
    """The authorities of this machine, and nothing that the environment names. A process that is to take up others is
    started anew.
    """
    return httpx2.create_ssl_context(trust_env=False)
