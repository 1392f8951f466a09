"""What the product tells those who operate it: traces, metrics. The lines of its log are in `logs`.

Spans are made of rows, and nowhere else: steps, calls and requests know when they began and ended, whoever worked on
them. Nothing is added to what a worker does, and a worker that is killed loses nothing.
"""
