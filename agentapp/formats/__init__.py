"""How Django writes moments where a page does not say it itself, as in the admin: a folder per language."""
