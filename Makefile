# Everything runs in .venv, which the first target that needs it makes.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check lock install clean
.DEFAULT_GOAL := help

help: ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/ -/'

install: .venv/.installed ## make .venv and install everything with exact pins (about 3 minutes, 6.6 GB)

.venv/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; ok = (3, 11) <= sys.version_info < (3, 15); sys.exit(0 if ok else "Pliant needs Python 3.11 to 3.14; this is %d.%d. Set PYTHON=python3.12, say." % sys.version_info[:2])'
	@echo "Installing into .venv: about 3 minutes and 6.6 GB the first time."
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: install ## the whole way: flow, registry, endpoint, replayed load
	$(BIN)/pliant demo

check: install ## ruff, mypy and the fast tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -m "not slow and not gpu"

test: install ## the whole test suite, or of it what ONLY="slow or gpu" names
	$(BIN)/python -m pytest $(if $(ONLY),-m "$(ONLY)")

lock: install ## remake the exact pins from the ranges in pyproject.toml
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --universal --python-version 3.11 --extra dev --extra bench --no-header --no-annotate --no-emit-index-url \
		--no-emit-find-links --prerelease if-necessary-or-explicit --upgrade pyproject.toml --output-file constraints.txt

clean: ## remove caches and local state, not .venv
	rm -rf .pliant mlruns/mlflow.db mlruns/artifacts .mypy_cache .ruff_cache .pytest_cache .hypothesis
