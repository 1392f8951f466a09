"""Figures for those who answer for the whole: how requests were decided, what calls came to, what it all cost.

`counting` adds up rows, `rollups` keeps the sums by hour and day, `reading` makes the figures of a stretch of time of
both. What each figure means is in docs/insights.md.
"""

from agentapp.insights.rollups import back_fill, catch_up

__all__ = ["back_fill", "catch_up"]
