"""What the product tells its operators: traces and metrics. Log lines are in `logs`.

Spans are made only from rows: steps, calls and requests know when they began and ended, whoever worked on them. Workers
do nothing extra, and a worker that is killed loses nothing.
"""
