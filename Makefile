# `make` alone lists the targets. Everything is installed into .venv, nothing outside it.
PYTHON ?= python3
BIN := .venv/bin
ARGS ?=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install demo test check lint format types arrows docs docs-serve bench lock \
        services-up services-down services-status clean distclean

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# ------------------------------------------------------------------ setting up

install: .venv/.installed ## Make .venv with the locked packages and this checkout

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'Migrator needs Python 3.11 or newer: make install PYTHON=/path/to/python3.11' >&2; exit 1; }
	$(PYTHON) -m venv .venv

# The stamps make a second run quick; the lock holds pip and setuptools too, so that building
# this checkout fetches nothing which has no hash.
.venv/.locked: requirements.lock | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  --require-hashes -r requirements.lock
	@touch $@

.venv/.installed: pyproject.toml .venv/.locked
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  --no-deps --no-build-isolation --editable .
	@touch $@

lock: .venv/.installed ## Resolve the newest packages into requirements.lock (some minutes)
	@mkdir -p build
	$(BIN)/python -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb")); \
	  print(*p["build-system"]["requires"], *p["dependency-groups"]["dev"], sep="\n")' > build/dev.in
	CUSTOM_COMPILE_COMMAND='make lock' $(BIN)/pip-compile --quiet --upgrade --generate-hashes \
	  --strip-extras --allow-unsafe --no-emit-options --extra postgresql --extra mysql \
	  --extra mongo --extra testing --output-file requirements.lock pyproject.toml build/dev.in

# ------------------------------------------------------------------ using it

demo: install ## Run the main job on a generated SQLite shop, with no server (under demo/)
	@PATH="$(CURDIR)/$(BIN):$$PATH" scripts/demo

services-up: ## Start the test servers (PostgreSQL, MariaDB, MongoDB's protocol)
	scripts/services up $(ARGS)

services-down: ## Stop them
	scripts/services down $(ARGS)

services-status: ## Show them
	scripts/services status $(ARGS)

# ------------------------------------------------------------------ checking it

test: install ## Run the tests; ARGS='-k name -x' goes to pytest
	$(BIN)/python -m pytest $(ARGS)

check: lint types arrows docs ## Everything that is checked without running the tests

lint: install ## Style: ruff check and ruff format --check
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: install ## Types: mypy, strict
	$(BIN)/mypy

arrows: install ## Imports point one way: import-linter
	$(BIN)/lint-imports

format: install ## Let ruff mend what it can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: install ## Build the documentation into site/; a dead link fails
	$(BIN)/mkdocs build --strict --quiet

docs-serve: install ## Show the documentation while you write
	$(BIN)/mkdocs serve

bench: install ## Run the benchmarks (minutes; wants the test servers)
	$(BIN)/python -m tests.benchmarks $(ARGS)

# ------------------------------------------------------------------ tidying up

clean: ## Remove what the targets above made, but .venv and .services
	rm -rf build dist site demo .pytest_cache .hypothesis .mypy_cache .ruff_cache .import_linter_cache
	find migrator tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## Remove .venv as well
	rm -rf .venv migrator.egg-info
