"""The files for operators agree with each other: units, manifests and images start what the pages name."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.conf import settings
from django.db import models
from django.db.migrations import operations
from django.db.migrations.loader import MigrationLoader

from agentapp.models import Tool

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTED = set(re.findall(r"^\| `([A-Z_]+)` \|", (ROOT / "docs/settings.md").read_text(), re.MULTILINE))
MANIFESTS = [
    told for file in sorted(ROOT.glob("docs/kubernetes/*.yaml")) for told in yaml.safe_load_all(file.read_text())
]
PODS = {
    told["metadata"]["name"]: told["spec"]["template"]["spec"]
    for told in MANIFESTS
    if "template" in told.get("spec", {})
}
UNITS = {file.stem: file.read_text() for file in sorted(ROOT.glob("docs/systemd/*.service"))}
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
BACKS_UP = "python manage.py back_up /srv/countersign/backups"
# The last migrations before old and new processes had to work side by side.
BEFORE = {"agentapp": "0033_branches", "approvals": "0027_mocked_runs"}


def page_commands() -> dict[str, str]:
    """What the production page starts first, by its program and first word."""
    page, _, _ = (ROOT / "docs/production.md").read_text().partition("## The next release")
    started = re.findall(r"^((?:uvicorn|celery) .*?) > \S+ 2>&1 &$", page, re.MULTILINE)
    names = {"agentapp.asgi:application": "web", "worker": "worker", "beat": "beat"}
    return {next(names[word] for word in command.split() if word in names): command for command in started}


def test_units_start_what_the_production_page_starts():
    assert {name.removeprefix("countersign-") for name in UNITS} == {"web", "worker", "beat", "backup"}
    for name in ("countersign-web", "countersign-worker", "countersign-beat"):
        [started] = re.findall(r"^ExecStart=/srv/countersign/app/\.venv/bin/(.*)$", UNITS[name], re.MULTILINE)
        assert started == page_commands()[name.removeprefix("countersign-")]


def test_units_see_the_python_that_the_production_page_brings():
    page = (ROOT / "docs/production.md").read_text()
    [brought] = set(re.findall(r"^export UV_PYTHON_INSTALL_DIR=(.*)$", page, re.MULTILINE))
    for unit in UNITS.values():
        [home] = re.findall(r"^WorkingDirectory=(.*)/app$", unit, re.MULTILINE)
        assert "ProtectHome=true" in unit
        assert brought == f"{home}/python"


def test_the_timer_starts_the_backup_and_the_page_starts_the_timer():
    timer = (ROOT / "docs/systemd/countersign-backup.timer").read_text()
    assert re.search(r"^OnCalendar=", timer, re.MULTILINE)
    assert "Unit=" not in timer  # so it is the service of its own name
    page = (ROOT / "docs/production.md").read_text()
    assert re.search(r"^systemctl enable --now .*\bcountersign-backup\.timer\b", page, re.MULTILINE)
    assert f"ExecStart=/srv/countersign/app/.venv/bin/{BACKS_UP}\n" in UNITS["countersign-backup"]
    assert f". /srv/countersign/shell\n{BACKS_UP}\n" in page
    assert "ReadWritePaths=/srv/countersign/backups\n" in UNITS["countersign-backup"]
    assert not any("backups" in unit for name, unit in UNITS.items() if name != "countersign-backup")


def test_the_page_s_own_command_runs_beside_the_units_as_their_user_with_their_settings(tmp_path):
    page = (ROOT / "docs/production.md").read_text()
    [defined] = re.findall(r"^```bash\n(countersign\(\) .*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "environment").write_text(
        "DATABASE_URL='postgres://db/x?sslmode=verify-full&sslrootcert=/etc/db.pem'\n"
    )
    programs = {
        "bin/runuser": 'test "$1 $2 $3" = "-u countersign --" || exit 1; shift 3; exec "$@"',
        "app/.venv/bin/python": 'for word; do printf "[%s]" "$word"; done; echo " $PWD $DATABASE_URL ${SECRET_KEY-no}"',
    }
    for name, does in programs.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/sh\n{does}\n")
        file.chmod(0o755)
    path = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "SECRET_KEY": "of whoever is root"}
    script = f"{defined.replace('/srv/countersign', str(tmp_path))}\ncountersign load_config 'my rules.yaml'"
    done = subprocess.run(["bash", "-euc", script], env=path, capture_output=True, text=True, check=True)
    address = "postgres://db/x?sslmode=verify-full&sslrootcert=/etc/db.pem"
    assert done.stdout == f"[manage.py][load_config][my rules.yaml] {tmp_path}/app {address} no\n"


def test_a_worker_has_time_for_a_reply_and_a_write():
    [unit] = re.findall(r"^TimeoutStopSec=(\d+)$", UNITS["countersign-worker"], re.MULTILINE)
    pod = PODS["countersign-worker"]["terminationGracePeriodSeconds"]
    assert f"{unit}s" == f"{pod}s" == COMPOSE["services"]["worker"]["stop_grace_period"]
    assert pod >= settings.MODEL_TIMEOUT_SECONDS + Tool._meta.get_field("timeout_seconds").default
    assert f"kill it after {pod} s." in (ROOT / "docs/operating.md").read_text()


def test_what_a_unit_would_read_as_its_own_is_written_twice():
    for page in ROOT.glob("docs/**/*.md"):
        for line in page.read_text().splitlines():
            assert "NAME@%h" not in line, page
    for unit in UNITS.values():
        assert not re.search(r"(?<!%)%(?!%)", unit)


@pytest.mark.parametrize("part", ["web", "worker", "beat"])
def test_manifests_and_compose_start_what_the_production_page_starts(part):
    [container] = PODS[f"countersign-{part}"]["containers"]
    told = shlex.split(page_commands()[part].replace("127.0.0.1", "0.0.0.0"))
    assert [word for word in container["command"] if word not in ("-n", "worker@%h")] == told
    composed = COMPOSE["services"][part].get("command")
    if composed is not None:
        assert [word for word in composed.split() if word not in ("-n", "worker@%h")] == told
    else:
        [image] = re.findall(r"^CMD (\[.*\])$", (ROOT / "Dockerfile").read_text().replace("\\\n", ""), re.MULTILINE)
        assert yaml.safe_load(image) == told


@pytest.mark.parametrize("page", ["README.md", "docs/operating.md"])
def test_other_pages_start_what_the_production_page_starts(page):
    started = re.findall(
        r"(?:^|`)((?:uvicorn|celery) (?:agentapp|-A agentapp (?:worker|beat)).*?)(?:`|  |$)",
        (ROOT / page).read_text(),
        re.MULTILINE,
    )
    here = {"--host 127.0.0.1", "--port 8000", "--pidfile="}
    expected = [re.sub(rf" (?:{'|'.join(here)})", "", page_commands()[part]) for part in ("web", "worker", "beat")]
    assert started == expected


def test_manifests_name_settings_that_exist():
    named = {
        name for told in MANIFESTS for name in {**told.get("data", {}), **told.get("stringData", {})} if name.isupper()
    }
    assert len(named) > 10
    assert named <= DOCUMENTED


def test_probes_ask_for_a_host_that_is_allowed():
    [told] = [told["data"] for told in MANIFESTS if told["kind"] == "ConfigMap"]
    [container] = PODS["countersign-web"]["containers"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        sent = {header["name"]: header["value"] for header in container[probe]["httpGet"]["httpHeaders"]}
        assert sent["Host"] in told["ALLOWED_HOSTS"].split(",")
        assert sent["X-Forwarded-Proto"] == "https"


def test_what_is_applied_with_each_release_replaces_no_secret():
    page = (ROOT / "docs/kubernetes.md").read_text()
    applied = {
        file for line in re.findall(r"^kubectl apply (.*)$", page, re.MULTILINE) for file in line.split() if "." in file
    }
    ours = {file.name for file in ROOT.glob("docs/kubernetes/*.yaml")}
    assert applied - {"secrets.yaml"} == ours - {"secrets.example.yaml"}
    for name in ours - {"secrets.example.yaml"}:
        kinds = {told["kind"] for told in yaml.safe_load_all((ROOT / "docs/kubernetes" / name).read_text())}
        assert "Secret" not in kinds, name


def test_nothing_runs_as_root_or_writes_where_it_need_not():
    for pod in PODS.values():
        assert pod["securityContext"]["runAsNonRoot"]
        for container in pod["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"]
            assert not container["securityContext"]["allowPrivilegeEscalation"]
            assert container["resources"]["limits"]["memory"]
    for name in ("migrate", "web", "worker", "beat"):
        service = COMPOSE["services"][name]
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
        assert service["mem_limit"]
    assert re.search(r"^USER (?!root)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)


def test_nobody_reaches_a_pod_but_at_the_port_of_web_processes():
    policies = [told["spec"] for told in MANIFESTS if told["kind"] == "NetworkPolicy"]
    everything, web = sorted(policies, key=lambda spec: len(spec["podSelector"]["matchLabels"]))
    for name, pod in (
        (t["metadata"]["name"], t["spec"]["template"]) for t in MANIFESTS if "template" in t.get("spec", {})
    ):
        assert everything["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items(), name
        is_web = web["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
        assert is_web is (name == "countersign-web")
    assert "ingress" not in everything
    [container] = PODS["countersign-web"]["containers"]
    assert [port["port"] for rule in web["ingress"] for port in rule["ports"]] == [container["ports"][0]["name"]]


def test_what_several_run_of_is_never_taken_away_all_at_once():
    kept = {
        told["spec"]["selector"]["matchLabels"]["part"] for told in MANIFESTS if told["kind"] == "PodDisruptionBudget"
    }
    several = {
        told["metadata"]["labels"]["part"]
        for told in (t["spec"]["template"] for t in MANIFESTS if t.get("spec", {}).get("replicas", 1) > 1)
    }
    assert kept == several == {"web", "worker"}


def test_every_part_of_compose_is_bounded_and_watched():
    for name, service in COMPOSE["services"].items():
        assert service["mem_limit"], name
        assert service["pids_limit"], name
        assert "no-new-privileges:true" in service["security_opt"], name
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert name == "migrate" or service["healthcheck"]["test"], name


def test_in_compose_nobody_but_the_product_reaches_its_database_and_broker_and_these_reach_nobody():
    networks = {name: service["networks"] for name, service in COMPOSE["services"].items()}
    assert COMPOSE["networks"]["store"]["internal"]
    stores = {name for name, among in networks.items() if among == ["store"]}
    assert stores == {"postgres", "redis"}
    assert not any("ports" in COMPOSE["services"][name] for name in stores)
    assert {name for name, among in networks.items() if among == ["default", "store"]} == set(networks) - stores


def test_what_watches_beat_looks_at_what_beat_touches():
    beat = COMPOSE["services"]["beat"]
    file = beat["environment"]["BEAT_FILE"]
    asked = beat["healthcheck"]["test"][1].replace("$$", "$")
    [container] = PODS["countersign-beat"]["containers"]
    assert {"name": "BEAT_FILE", "value": file} in container["env"]
    assert container["livenessProbe"]["exec"]["command"] == ["sh", "-c", asked]
    assert file in asked


def probed(folder, answers, **redis):
    """Whether a worker's probe lets it live."""
    celery = folder / "celery"
    celery.write_text(f"#!/bin/sh\nexit {0 if answers else 69}\n")
    celery.chmod(0o755)
    [container] = PODS["countersign-worker"]["containers"]
    environment = {"PATH": f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}", **redis}
    asked = container["livenessProbe"]["exec"]["command"]
    return subprocess.run(asked, env=environment, cwd=ROOT, capture_output=True, check=False).returncode == 0


def test_a_worker_that_cannot_answer_because_redis_is_away_is_not_ended(tmp_path):
    assert probed(tmp_path, answers=True, REDIS_URL="redis://127.0.0.1:1/0")
    assert probed(tmp_path, answers=False, REDIS_URL="redis://127.0.0.1:1/0")


@pytest.mark.redis
def test_a_worker_that_does_not_answer_while_redis_does_is_ended(tmp_path):
    assert probed(tmp_path, answers=True, REDIS_URL=settings.REDIS_URL)
    assert not probed(tmp_path, answers=False, REDIS_URL=settings.REDIS_URL)
    file = tmp_path / "redis-url"
    file.write_text(f"{settings.REDIS_URL}\n")
    assert not probed(tmp_path, answers=False, REDIS_URL_FILE=str(file))


def test_a_worker_whose_redis_is_looked_up_for_ever_is_not_ended(tmp_path):
    programs = {"python": "sleep 5", "timeout": f'shift; exec {shutil.which("timeout")} 0.2 "$@"'}
    for name, does in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    assert probed(tmp_path, answers=False)
    [container] = PODS["countersign-worker"]["containers"]
    probe = container["livenessProbe"]
    limits = re.findall(r"\btimeout (\d+) (\w+)", probe["exec"]["command"][-1])
    assert [program for _, program in limits] == ["celery", "python"]
    assert sum(int(seconds) for seconds, _ in limits) < probe["timeoutSeconds"]


def test_what_watches_beat_tells_one_that_goes_round_from_one_that_has_stopped(tmp_path):
    note = tmp_path / "beat"
    asked = COMPOSE["services"]["beat"]["healthcheck"]["test"][1].replace("$$", "$").replace("/tmp/beat", str(note))
    for age, well in ((None, False), (5, True), (90, False)):
        if age is not None:
            note.touch()
            os.utime(note, (time.time() - age,) * 2)
        assert (subprocess.run(["sh", "-c", asked], stderr=subprocess.DEVNULL).returncode == 0) is well, age


def test_the_demo_in_containers_needs_nothing_that_is_not_there():
    given = dict(
        line.split("=", 1) for line in (ROOT / "compose.demo.env").read_text().splitlines() if not line.startswith("#")
    )
    needed = set(re.findall(r"\$\{(\w+):\?", (ROOT / "compose.yaml").read_text()))
    assert needed <= set(given)
    assert set(given) - {"ENV_FILE", "POSTGRES_PASSWORD", "DATABASE_PASSWORD"} <= DOCUMENTED
    assert COMPOSE["services"]["web"]["env_file"] == "${ENV_FILE:-.env}"
    assert (ROOT / given["ENV_FILE"]).exists()
    demo = yaml.safe_load((ROOT / "compose.demo.yaml").read_text())
    assert {name: list(told) for name, told in demo["services"].items()} == {"migrate": ["command"]}
    made = COMPOSE["services"]["migrate"]["command"].replace(" && python manage.py sync_tools", "")
    assert demo["services"]["migrate"]["command"] == made.replace("migrate --noinput", "demo --no-serve")
    assert all(port.startswith("127.0.0.1:") for port in COMPOSE["services"]["web"]["ports"])


def with_overrides(*files):
    """What compose makes of these: it merges maps and lists, and the last value counts."""

    def merged(one, other):
        if isinstance(one, dict) and isinstance(other, dict):
            return one | {key: merged(one[key], told) if key in one else told for key, told in other.items()}
        return [*one, *other] if isinstance(one, list) and isinstance(other, list) else other

    told = {}
    for file in files:
        told = merged(told, yaml.safe_load((ROOT / file).read_text()))
    return told


def test_secrets_of_containers_are_files_and_nothing_else():
    told = with_overrides("compose.yaml", "docs/compose.secrets.yaml")
    for part in ("migrate", "web", "worker", "beat"):
        service = told["services"][part]
        named = {name for name in service["environment"] if name.endswith("_FILE") and name != "BEAT_FILE"}
        secrets = {"SECRET_KEY", "DATABASE_URL", "LEDGER_SIGNING_KEY"} | (
            {"DATABASE_PASSWORD"} if part == "migrate" else set()
        )
        assert {name.removesuffix("_FILE") for name in named} == secrets
        files = {service["environment"][name].removeprefix("/run/secrets/") for name in named}
        assert files == set(service["secrets"]) <= set(told["secrets"])
        # As if .env had none of them: empty counts as unset.
        assert service["environment"]["DATABASE_URL"] == ""
        assert service["environment"]["SECRET_KEY"] == "${SECRET_KEY-}"
        assert service["environment"]["REDIS_URL"]
        # Nor the owner's, from .env or from a file.
        assert service["environment"]["POSTGRES_PASSWORD"] == ""
        assert ("owner_url" in service["secrets"]) is (part == "migrate")
    postgres = told["services"]["postgres"]
    assert postgres["environment"]["POSTGRES_PASSWORD"] == "${POSTGRES_PASSWORD-}"
    assert [postgres["environment"]["POSTGRES_PASSWORD_FILE"]] == [
        f"/run/secrets/{name}" for name in postgres["secrets"]
    ]


def test_what_makes_the_secrets_of_containers_makes_each_that_is_named(tmp_path):
    told = yaml.safe_load((ROOT / "docs/compose.secrets.yaml").read_text())
    page = (ROOT / "docs/operating.md").read_text()
    [commands] = re.findall(r"^```sh\n(echo COMPOSE_FILE=.*?)^```", page, re.MULTILINE | re.DOTALL)
    commands = re.sub(r"^chown .*", "", commands, flags=re.MULTILINE)
    subprocess.run(["sh", "-euc", commands], cwd=tmp_path, check=True)
    assert {str(file.relative_to(tmp_path)) for file in tmp_path.glob("secrets/*")} == {
        secret["file"] for secret in told["secrets"].values()
    }
    files = {name: str(tmp_path / secret["file"]) for name, secret in told["secrets"].items()}
    with_owner = told["services"]["migrate"]["environment"]
    assert (tmp_path / "secrets/owner_url").read_text().startswith("postgres://countersign_owner:")
    password = Path(files[with_owner["DATABASE_PASSWORD_FILE"].removeprefix("/run/secrets/")]).read_text()
    variables = {
        name: given and files[given.removeprefix("/run/secrets/")]
        for name, given in told["services"]["web"]["environment"].items()
    }
    says = "print(settings.DATABASES['default']['PASSWORD'], len(settings.SECRET_KEY)); from approvals.proof import "
    says += "signing_key; print(signing_key.problem())"
    done = subprocess.run(
        [sys.executable, "-c", f"from django.conf import settings; {says}"],
        env={**variables, "DJANGO_SETTINGS_MODULE": "agentapp.settings", "DATA_DIR": str(tmp_path), "SECRET_KEY": ""},
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == f"{password.strip()} 64\n\n"
    named = re.search(r"^COMPOSE_FILE=(.*)$", (tmp_path / ".env").read_text(), re.MULTILINE)
    assert all((ROOT / file).exists() for file in named[1].split(":"))


def test_without_a_key_the_service_that_all_others_wait_for_fails(tmp_path):
    for part in ("web", "worker", "beat"):
        assert COMPOSE["services"][part]["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}
    command = [sys.executable, "manage.py", "migrate", "--noinput"]
    variables = {"SECRET_KEY": "", "BASE_URL": "https://x.example", "TOOL_MODULES": "agentapp.tools.planning"}
    environment = {**variables, "DATA_DIR": str(tmp_path)}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode
    assert "countersign.E001" in done.stderr


def test_what_is_done_in_containers_names_services_that_exist():
    page = (ROOT / "docs/operating.md").read_text()
    named = re.findall(r"^(?:# [\w ]+: )?docker compose (?:exec|run) (?:--?\S+ )*(\w+) (\w+)", page, re.MULTILINE)
    assert len(named) > 5
    assert {service for service, _ in named} <= set(COMPOSE["services"])
    told = yaml.safe_load(re.findall(r"^```yaml\n(services:\n.*?)^```", page, re.MULTILINE | re.DOTALL)[0])
    ours = {name for name, service in COMPOSE["services"].items() if service.get("image") == "countersign"}
    assert set(told["services"]) == ours


# --- Old code on new tables --------------------------------------------------------------------

GONE = (operations.RemoveField, operations.RenameField, operations.RenameModel, operations.DeleteModel)


# What was found in a migration, and why a process of the release before goes on all the same.
SURVIVED = {
    ("agentapp", "0035_continuity", "Raw Python operation"): "adds the one row of a new table",
    ("agentapp", "0049_undo_asked_again", "Create constraint run_one_undo_of_a_call on model run"): (
        "took the place of a stricter one: each call could be taken back by one run"
    ),
    ("agentapp", "0049_undo_asked_again", "Create constraint run_took_back_nothing_has_ended on model run"): (
        "is about a new column, which the release before leaves false"
    ),
    (
        "agentapp",
        "0049_undo_asked_again",
        "Alter field undoes on run",
    ): "the column stays; it need not be unique any more",
    ("approvals", "0028_judgements", "Raw Python operation"): "adds an index to a new table",
    ("approvals", "0029_reveal_secret", "Raw Python operation"): "gives groups a right that the release before ignores",
}


def breaks_old_code(operation: Any, app: str, before: Any) -> str:
    """Why a process of the previous release could not go on with the tables after this. Empty: it could."""
    if isinstance(operation, GONE):
        return f"{operation.describe()}: what the release before reads is gone; take it away one release later."
    if isinstance(operation, operations.AlterModelTable):
        return f"{operation.describe()}: the release before looks for it by its name."
    if isinstance(operation, operations.AddField) and not isinstance(operation.field, models.ManyToManyField):
        field = operation.field
        if not field.null and field.db_default is models.NOT_PROVIDED:
            return f"{operation.describe()}: the release before does not fill it; it needs a db_default, or null."
        if field.unique and not field.null:
            return f"{operation.describe()}: the release before gives each row the same value."
    if isinstance(operation, operations.AlterField):
        was = before.models[app, operation.model_name_lower].fields[operation.name]
        return narrowed(operation, was, operation.field)
    if isinstance(operation, operations.AddConstraint | operations.AlterUniqueTogether):
        return f"{operation.describe()}: the release before may write what it refuses."
    if isinstance(operation, operations.RunPython | operations.RunSQL):
        return f"{operation.describe()}: nobody can tell what it does to the release before."
    return ""


def narrowed(operation: Any, was: Any, field: Any) -> str:
    """Why a column no longer takes everything that it took before. Empty: it does."""
    if was.null and not field.null:
        return f"{operation.describe()}: the release before may leave it empty."
    if field.unique and not was.unique:
        return f"{operation.describe()}: the release before may write a value twice."
    if was.db_column != field.db_column:
        return f"{operation.describe()}: the release before looks for it by its name."
    if isinstance(field, models.DecimalField) and field.max_digits < was.max_digits:
        return f"{operation.describe()}: the release before may write more."
    shorter = was.max_length is None or (field.max_length is not None and field.max_length < was.max_length)
    if field.max_length is not None and shorter and not isinstance(field, models.JSONField):
        return f"{operation.describe()}: the release before may write more."
    if was.get_internal_type() != field.get_internal_type():
        return f"{operation.describe()}: the release before reads and writes another type."
    return ""


def broken_by(app: str, steps: list[Any], state: Any) -> list[str]:
    found = []
    for operation in steps:
        if isinstance(operation, operations.SeparateDatabaseAndState):
            found += broken_by(app, operation.database_operations, state.clone())
        found.append(breaks_old_code(operation, app, state))
        operation.state_forwards(app, state)
    return [why for why in found if why]


@pytest.mark.parametrize("app", BEFORE)
def test_old_code_survives_every_migration(app):
    loader = MigrationLoader(None, replace_migrations=False)
    later = sorted(name for of, name in loader.disk_migrations if of == app and name > BEFORE[app])
    for name in later:
        state = loader.project_state((app, name), at_end=False)
        found = broken_by(app, list(loader.disk_migrations[app, name].operations), state)
        assert [why for why in found if (app, name, why.partition(":")[0]) not in SURVIVED] == [], name


def test_what_old_code_does_not_survive_is_found():
    state = MigrationLoader(None, replace_migrations=False).project_state(("agentapp", BEFORE["agentapp"]))
    steps = [
        operations.AddField("run", "colour", models.CharField(max_length=5, default="")),
        operations.AddField("run", "size", models.CharField(max_length=5, db_default="")),
        operations.AddField("run", "weight", models.IntegerField(null=True)),
        operations.AlterField("run", "weight", models.IntegerField()),
        operations.RemoveField("run", "weight"),
        operations.AddField("run", "code", models.CharField(max_length=5, db_default="", unique=True)),
        operations.AlterField("run", "size", models.CharField(max_length=4, db_default="")),
        operations.AlterField("run", "size", models.CharField(max_length=6, db_default="")),
        operations.AlterField("run", "size", models.CharField(max_length=6, db_default="", unique=True)),
        operations.AlterField("run", "size", models.TextField(db_default="", unique=True)),
        operations.AddConstraint("run", models.CheckConstraint(condition=models.Q(size=""), name="short")),
        operations.RunPython(operations.RunPython.noop),
        operations.SeparateDatabaseAndState([operations.RunSQL("SELECT 1")], []),
        operations.AlterUniqueTogether("run", {("size", "code")}),
        operations.RenameField("run", "size", "length"),
    ]
    found = broken_by("agentapp", steps, state)
    assert [why.partition(":")[0] for why in found] == [
        "Add field colour to run", "Alter field weight on run", "Remove field weight from run", "Add field code to run",
        "Alter field size on run", "Alter field size on run", "Alter field size on run",
        "Create constraint short on model run", "Raw Python operation", "Raw SQL operation",
        "Alter unique_together for run (1 constraint(s))", "Rename field size on run to length",
    ]  # fmt: skip
