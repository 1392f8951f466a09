"""What a tool is, where tools come from, and how their calls are described to people.

To write one: put `@tool` on a typed function and name its module in TOOL_MODULES.
"""
