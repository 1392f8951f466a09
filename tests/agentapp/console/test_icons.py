"""Every icon named anywhere is in the sprite: a missing one shows as an empty square."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings

from agentapp.console import history

SPRITE = settings.BASE_DIR / "templates" / "console" / "_icons.html"
KNOWN = frozenset(re.findall(r'<symbol id="i-([a-z-]+)"', SPRITE.read_text()))
IN_A_TEMPLATE = re.compile(r"""\{%-?\s*icon\s+['"]([^'"]+)['"]""")
# The position of the icon's name among the arguments of each class that has one.
PLACES = {"EffectLine": 2, "Place": 2, "Section": 2, "Found": 2, "Entry": 0}


def in_templates() -> set[tuple[str, str]]:
    paths = (settings.BASE_DIR / "templates").rglob("*.html")
    return {(path.name, name) for path in paths for name in IN_A_TEMPLATE.findall(path.read_text())}


def in_code(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        found: list[ast.expr | None] = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            at = PLACES.get(node.func.id, len(node.args))
            found = [*node.args[at : at + 1], *(given.value for given in node.keywords if given.arg == "icon")]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "icon":
            found = [node.value]
        elif isinstance(node, ast.Dict):
            keys = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
            found = [value for key, value in zip(keys, node.values, strict=True) if key == "icon"]
        yield from (str(one.value) for one in found if isinstance(one, ast.Constant) and one.value)


def named_in_code() -> set[tuple[str, str]]:
    paths = [path for part in ("agentapp", "approvals") for path in (settings.BASE_DIR / part).rglob("*.py")]
    return {(path.name, name) for path in paths for name in in_code(path)}


def test_every_symbol_of_a_template_is_in_the_sprite() -> None:
    found = in_templates()

    assert {name for _, name in found} & KNOWN
    assert [one for one in found if one[1] not in KNOWN] == []


def test_every_symbol_of_an_effect_a_page_or_a_part_of_one_is_in_the_sprite() -> None:
    found = named_in_code()

    assert {"zap", "money", "trash", "inbox", "finger", "lock", "bell"} <= {name for _, name in found}
    assert [one for one in found if one[1] not in KNOWN] == []


def test_every_symbol_of_a_history_is_in_the_sprite() -> None:
    found = {history._words(type_, {"status": status}, "Dana")[0] for type_ in history._TYPES for status in ("ok", "")}

    assert found - KNOWN == set()
