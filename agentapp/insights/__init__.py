"""Figures for managers: how requests were decided, what became of calls, and what everything cost.

`counting` adds up rows, `rollups` keeps the sums by hour and day, and `reading` makes the figures of a period from
both. docs/insights.md says what each figure means.
"""

from agentapp.insights.rollups import back_fill, catch_up

__all__ = ["back_fill", "catch_up"]
