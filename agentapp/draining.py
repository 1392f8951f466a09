"""Whether this worker was told to end: it finishes its current replies and calls, and leaves their runs to others."""

import threading

begun = threading.Event()
"""Set once. In a pool of processes only the parent sees it; its children go on to the end of their slices."""
