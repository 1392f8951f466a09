"""What a Google-style docstring says: a description, and what each argument means."""

import re
from collections.abc import Iterator

from griffe import Docstring, DocstringSectionKind

_HEADING = re.compile(r"(Args|Arguments|Params|Parameters):\s*")
_ARGUMENT = re.compile(r"\s+\*{0,2}\w+\s*(\(.*\))?\s*:")


def read(text: str) -> tuple[str, dict[str, str]]:
    """The description and the described arguments. Raises ValueError for an Args section that does not describe any."""
    if not text.strip():
        return "", {}
    for line in _malformed(text.splitlines()):
        raise ValueError(f"Found invalid Google-style docstring: {line.strip()!r} is not 'argument: what it means'.")
    description, described = [], {}
    for section in Docstring(text, lineno=1).parse("google", warnings=False):
        if section.kind is DocstringSectionKind.text:
            description.append(section.value)
        elif section.kind is DocstringSectionKind.parameters:
            described.update({item.name: item.description for item in section.value})
    return "\n\n".join(description).strip(), described


def _malformed(lines: list[str]) -> Iterator[str]:
    for number, heading in enumerate(lines):
        if not _HEADING.fullmatch(heading):
            continue
        block = []
        for line in lines[number + 1 :]:
            if line.strip() and not line[0].isspace():
                break
            block.append(line)
        written = [line for line in block if line.strip()]
        if not written:
            yield heading
            continue
        indent = min(len(line) - len(line.lstrip()) for line in written)
        yield from (line for line in written if not line[indent].isspace() and not _ARGUMENT.match(line))
