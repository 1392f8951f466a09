"""Cases as tests write them: the clerk, with everything left out filled in."""

from typing import Any

from agentapp.evals.cases import Case
from tests.conftest import says


def a_case(name: str = "a-case", **said: Any) -> Case:
    """A case of the clerk that ends at once, unless it says otherwise."""
    expect = said.pop("expect", {})
    whole = {
        "name": name, "kind": "positive", "agent": "clerk", "input": "Do it.", "script": [says("done")],
        "expect": expect, **said,
    }  # fmt: skip
    return Case.model_validate(whole, strict=False)
