"""Which certificate authorities this machine trusts. Read once, because reading takes longer than most requests."""

import functools
import ssl

import httpx2


@functools.cache
def trusted() -> ssl.SSLContext:
    """The machine's certificate authorities, ignoring what the environment names. A process picks up new ones
    only when it is restarted.
    """
    return httpx2.create_ssl_context(trust_env=False)
