"""No process serves with the key written in the source."""

import os
import subprocess
import sys

import pytest

SERVERS = [
    ["-c", "import agentapp.asgi"],
    ["-c", "import agentapp.wsgi"],
    ["-m", "celery", "-A", "agentapp", "worker", "-P", "threads", "-c", "1"],
]


def begun(tmp_path, *command: str, **variables: str) -> tuple[int, str]:
    """A process's exit status and output."""
    own = {"DJANGO_SETTINGS_MODULE": "agentapp.settings", "DATA_DIR": str(tmp_path), "SECRET_KEY": ""} | variables
    kept = {name: value for name, value in os.environ.items() if name != "SECRET_KEY_FILE"}
    done = subprocess.run(
        [sys.executable, *command], env=kept | own, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stderr


@pytest.mark.apart
@pytest.mark.parametrize("command", SERVERS, ids=["asgi", "wsgi", "worker"])
def test_a_process_that_serves_does_not_begin_with_the_key_that_anybody_knows(tmp_path, command) -> None:
    code, said = begun(tmp_path, *command, DEBUG="false")
    assert code == 1
    assert "SECRET_KEY is not set, and the default key is in the published source" in said


@pytest.mark.apart
@pytest.mark.parametrize("own", [{"DEBUG": "true"}, {"DEBUG": "false", "SECRET_KEY": "a key of one's own " * 3}])
def test_it_begins_with_one_of_its_own_and_where_it_is_developed(tmp_path, own) -> None:
    assert begun(tmp_path, "-c", "import agentapp.asgi", **own)[0] == 0
