"""Generates `docs/aisvs.md` from the requirements and their tests: `python -m tests.aisvs.page`."""

from pathlib import Path

from tests.aisvs.requirements import CHAPTERS, REQUIREMENTS, TESTS, Requirement

PAGE = Path(__file__).resolve().parents[2] / "docs" / "aisvs.md"
FILE = "../tests/aisvs/test_requirements.py"

HEAD = """\
# OWASP AISVS

This page says how far Countersign meets the requirements of the OWASP AI Security Verification Standard 1.0 for agents
that act: chapters C9.1, C9.2, C9.5 and C9.6, which are about what the product itself decides. The other chapters, also
of C9, have not been gone through. The requirements are in our own words; numbers and levels are the standard's. Each
requirement that is met, in full or in part, has a test that tries to break it. This page is generated from those tests
(`python -m tests.aisvs.page`), and `make test` fails if the two differ.

It describes the product. How far an installation meets the standard also depends on its rules, its roles and where it
runs: see [operating](operating.md).
"""


def text() -> str:
    """The whole page."""
    counts = {status: sum(one.status == status for one in REQUIREMENTS) for status in ("met", "partly", "not met")}
    parts = [HEAD, ", ".join(f"{count} {status}" for status, count in counts.items()) + ".\n"]
    for number, title in CHAPTERS.items():
        parts.append(f"## C{number} {title}\n")
        rows = [_row(one) for one in REQUIREMENTS if one.chapter == number]
        parts.append(
            "| # | Level | Requirement | Status | How, and what is missing | Test |\n|---|---|---|---|---|---|\n"
        )
        parts[-1] += "\n".join(rows) + "\n"
    return "\n".join(parts)


def _row(one: Requirement) -> str:
    tests = TESTS.get(one.number, [])
    shown = "; ".join(f"[{test.removeprefix('test_').replace('_', ' ')}]({FILE})" for test in tests) or "none"
    return f"| {one.number} | {one.level} | {one.meaning} | **{one.status}** | {one.how} | {shown} |"


if __name__ == "__main__":
    import os

    import django

    os.environ["DEBUG"], os.environ["DJANGO_SETTINGS_MODULE"] = "true", "agentapp.settings"
    django.setup()
    from tests.aisvs import test_requirements  # noqa: F401 its tests tell their numbers as they are defined

    PAGE.write_text(text())
