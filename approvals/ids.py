"""Keys that sort by creation time, so that new rows go to the end of an index."""

import os
import time
import uuid
from datetime import datetime


def uuid7() -> uuid.UUID:
    """A UUID version 7 (RFC 9562): 48 bits of milliseconds, then random bits. Python 3.13 has none."""
    value = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10))
    value = value & ~(0xF << 76) | 0x7 << 76  # version
    value = value & ~(0x3 << 62) | 0x2 << 62  # variant
    return uuid.UUID(int=value)


def least_at(moment: datetime) -> uuid.UUID:
    """The lowest possible key of anything made at this moment or later."""
    return uuid.UUID(int=int(moment.timestamp() * 1000) << 80 | 0x7 << 76 | 0x2 << 62)
