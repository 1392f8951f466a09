"""Whether this worker was told to end: it ends the replies and calls it is in, and leaves their runs to others."""

import threading

begun = threading.Event()
"""Set once. Of a pool of processes only the parent hears of it, and its children go on to the end of their slices."""
