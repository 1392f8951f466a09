"""Python's search for objects that only hold each other: what a process has loaded for good is left out of it."""

import gc


def spare_what_is_loaded() -> None:
    """For a process that is about to begin its work.

    Modules, models and views are most of what it holds, and stay. To look through them again stops all of its threads
    for an eighth of a second, each time it has made a quarter as much beside them.
    """
    gc.collect()
    gc.freeze()
