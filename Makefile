# `make` alone lists the targets. Everything is installed into .venv, nothing outside it.
PYTHON ?= python3
BIN := .venv/bin
ARGS ?=

# Each test may start several processes, and each would compile all of it anew.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install demo test check lint format types arrows docs docs-serve references bench lock \
        services-up services-down services-status clean distclean

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# ------------------------------------------------------------------ setting up

install: .venv/.all ## Make .venv with this checkout and all locked packages

# What the demo needs is little and quickly there; tests and tools come on top of it. The stamps
# make a second run quick. Both locks hold setuptools, so that building this checkout fetches
# nothing which has no hash.
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'Migrator needs Python 3.11 or newer: make install PYTHON=/path/to/python3.11' >&2; exit 1; }
	$(PYTHON) -m venv .venv

.venv/.base: pyproject.toml requirements.lock | .venv/bin/python
	$(PIP_INSTALL) --require-hashes -r requirements.lock
	@PYTHONWARNINGS=ignore $(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

.venv/.all: requirements-dev.lock .venv/.base
	$(PIP_INSTALL) --require-hashes -r requirements-dev.lock
	@touch $@

COMPILE := CUSTOM_COMPILE_COMMAND='make lock' $(BIN)/pip-compile --quiet --generate-hashes \
           --strip-extras --allow-unsafe --no-emit-options
REQUIRES := $(BIN)/python -c 'import sys, tomllib; p = tomllib.load(open("pyproject.toml", "rb")); \
            print(*p["build-system"]["requires"], *sum(map(p["dependency-groups"].get, sys.argv[1:]), []), sep="\n")'

# The small lock starts from the large one and so has the same versions.
UPGRADE ?= --upgrade

lock: install ## Resolve the newest packages into the lock files; UPGRADE= keeps what is pinned
	@mkdir -p build
	@$(REQUIRES) > build/build.in
	@$(REQUIRES) dev > build/dev.in
	$(COMPILE) $(UPGRADE) --extra postgresql --extra mysql --extra mongo --extra redis \
	  --extra dynamodb --extra cassandra --extra metrics --extra serve --extra testing \
	  --output-file requirements-dev.lock pyproject.toml build/dev.in
	cp requirements-dev.lock requirements.lock
	$(COMPILE) --output-file requirements.lock pyproject.toml build/build.in

# ------------------------------------------------------------------ using it

demo: .venv/.base ## Run the main job on a generated SQLite shop, with no server (under demo/)
	@PATH="$(CURDIR)/$(BIN):$$PATH" scripts/demo

services-up: ## Start the test servers (ARGS='redis cassandra' starts those alone)
	scripts/services up $(ARGS)

services-down: ## Stop them
	scripts/services down $(ARGS)

services-status: ## Show them
	scripts/services status $(ARGS)

# ------------------------------------------------------------------ checking it

# Three on two cores: one of them waits for a server most of the time. tests/together.py says which
# tests stay together.
WORKERS ?= 3

test: install ## Run the tests; ARGS='-k name -x' goes to pytest; WORKERS=0 for a debugger
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder $(ARGS)

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
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

references: install ## Write the pages of docs/ that are taken from the code
	$(BIN)/python scripts/references.py

docs-serve: install ## Show the documentation while you write
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

bench: install ## Run the benchmarks (minutes; wants the test servers)
	$(BIN)/python -m tests.benchmarks.run $(ARGS)

# ------------------------------------------------------------------ tidying up

clean: ## Remove what the targets above made, but .venv and .services
	rm -rf build dist site demo .pytest_cache .hypothesis .mypy_cache .ruff_cache .import_linter_cache
	find migrator tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## Remove .venv as well
	rm -rf .venv migrator.egg-info
