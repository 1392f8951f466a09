"""Agents that follow guidelines: which guidelines hold, which tools they call for, what is missing, what is said.

Plain values in, plain values out: no rows, and no way to call a tool.
"""
