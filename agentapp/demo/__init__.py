"""A small shop that the demo's agent works for: real tables, tools, and scripted situations."""
