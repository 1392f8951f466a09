# Needs git, make, curl and Python 3.11 or newer. Everything else goes into .venv/ (and .uv/ if uv is not installed).

UV_VERSION := 0.13.8
UV := $(or $(shell command -v uv 2>/dev/null),.uv/bin/uv)
PYTHON := .venv/bin/python
# Arguments for demo, tour, test, worker and serve, as in: make demo ARGS="--port 8100"
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup install demo tour test faults bench survives upgrades check lint types format migrations-check lock screenshots serve worker beat clean

help: ## Show what make can do
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/.complete ## Make .venv with everything in requirements.lock

install: | $(UV) ## Make .venv with only what production needs, at the versions of requirements.lock
	$(UV) venv --quiet --allow-existing --python "$$(cat .python-version)" .venv
	$(UV) pip install --quiet --python $(PYTHON) --require-hashes --constraint requirements.lock -r pyproject.toml

demo: setup ## Open the demo shop and serve it (ARGS="--port 8100", ARGS=--reset)
	@DEBUG=true SWEEP_SECONDS=$${SWEEP_SECONDS:-3} exec $(PYTHON) manage.py demo $(ARGS)

tour: setup ## While the demo runs, play a part of its tour (ARGS=quorum); without ARGS, list the parts
	@DEBUG=true exec $(PYTHON) manage.py demo_tour $(ARGS)

test: setup ## Check and test everything this machine allows, and list what it does not
	@$(PYTHON) .ci/test.py $(ARGS)

survives: setup ## Run the previous commit's tests on the tables of this one (ARGS="COMMIT tests/agentapp")
	@$(PYTHON) .ci/survives.py $(ARGS)

faults: setup ## Break servers and processes again and again while runs go on (needs PostgreSQL's server programs, redis-server; an hour)
	@DEBUG=true FAULTS=full $(PYTHON) -m pytest -q -n 0 -m faults -s tests/faults $(ARGS)

upgrades: setup ## Leave runs at an earlier commit, migrate, end them, and the other way round (ARGS=COMMIT)
	@$(PYTHON) .ci/upgrades.py $(ARGS)

bench: setup .bench/.complete ## Measure the refund run, on Countersign and on LangGraph (needs PostgreSQL's server programs, redis-server)
	@$(PYTHON) benchmarks/run.py $(ARGS)

check: setup ## Lint, types, import contracts, migrations, Django's checks
	@$(PYTHON) .ci/test.py checks

lint: setup ## Lint, formatting and import contracts
	@$(PYTHON) -m ruff check .
	@$(PYTHON) -m ruff format --check .
	@.venv/bin/lint-imports

types: setup ## Strict types
	@$(PYTHON) -m mypy agentapp approvals

format: setup ## Format, and fix what can be fixed automatically
	@$(PYTHON) -m ruff check --fix .
	@$(PYTHON) -m ruff format .

migrations-check: setup ## Is every model change in a migration?
	@DEBUG=true $(PYTHON) manage.py makemigrations --check --dry-run

lock: | $(UV) ## Resolve pyproject.toml into requirements.lock
	$(UV) pip compile --universal --python-version 3.13 --generate-hashes --no-header --no-emit-index-url \
		--group dev pyproject.toml -o requirements.lock

screenshots: setup ## Take the pictures in docs/screenshots again (needs Chromium; ARGS="approval run")
	@$(PYTHON) .ci/screenshots.py $(ARGS)

serve: setup ## Serve the console and the API; without REDIS_URL, with a worker inside
	@exec $(PYTHON) manage.py serve $(ARGS)

worker: setup ## Run a Celery worker (needs REDIS_URL)
	@PREPARED_STATEMENTS=true exec .venv/bin/celery -A agentapp worker -P threads -c 16 $(ARGS)

beat: setup ## Run Celery beat, which starts the sweep (needs REDIS_URL)
	@exec .venv/bin/celery -A agentapp beat $(ARGS)

clean: ## Remove .venv, .uv and what tests and tools leave behind; data/ stays
	rm -rf .venv .uv .bench .peers .mypy_cache .ruff_cache .import_linter_cache .hypothesis staticfiles test-results

# Once for each lock file.
.venv/.complete: requirements.lock .python-version | $(UV)
	$(UV) venv --quiet --allow-existing --python "$$(cat .python-version)" .venv
	$(UV) pip sync --quiet --python $(PYTHON) requirements.lock
	@touch $@

# The rival of the benchmark, in an environment of its own.
.bench/.complete: benchmarks/rival.txt .python-version | $(UV)
	$(UV) venv --quiet --allow-existing --python "$$(cat .python-version)" .bench
	$(UV) pip install --quiet --python .bench/bin/python -r benchmarks/rival.txt
	@touch $@

.uv/bin/uv:
	python3 -m venv .uv
	.uv/bin/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
