# Everything runs in .venv, which the first target that needs it makes.
PYTHON ?= python3
BIN := .venv/bin

# SLOW=1 is the slow setting, on any machine: one core, and of its instructions AVX2 (float32). AVX2=1 keeps all cores.
PINNED := $(if $(SLOW),$(shell taskset -c 0 true 2>/dev/null && echo taskset -c 0))
$(if $(SLOW),$(if $(PINNED),,$(info taskset is missing or may not take core 0: SLOW=1 keeps all cores.)))
SETTING := $(PINNED) $(if $(SLOW)$(AVX2),env ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2)
# tests/conftest.py says how many processes; a file of tests stays in one process.
PYTEST := $(SETTING) $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder $(if $(SHUFFLE),--shuffle $(SHUFFLE))

.PHONY: demo test lint check ledger attacks chaos conformance nightly mutants sbom stack stack-test site lock install tools clean
.DEFAULT_GOAL := help

help: ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/ -/'

install: .venv/.installed ## make .venv and install what Pliant runs, with exact pins (some minutes, 7 GB; docs/operations.md says why)

tools: .venv/.installed-dev ## the same and the tools of the tests

.venv/.installed: pyproject.toml packages/pliant-core/pyproject.toml constraints.txt install.py
	@$(PYTHON) install.py demo
	@touch $@

.venv/.installed-dev: pyproject.toml packages/pliant-core/pyproject.toml constraints.txt install.py
	@$(PYTHON) install.py dev
	@touch .venv/.installed $@

demo: install ## the whole way: flow, registry, endpoint, replayed load
	$(SETTING) $(BIN)/pliant demo

lint: tools ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(PINNED) $(BIN)/mypy

check: lint ## ruff, mypy and the fast tests (SHUFFLE=1 in a random order, that of seed 1)
	$(PYTEST) -m "not slow"

test: tools ## the whole test suite, or of it what ONLY="slow" names; SLOW=1 as on a slow machine
	$(PYTEST) $(if $(ONLY),-m "$(ONLY)")

ledger: tools ## measure what is promised, beside what landed last; ONLY=bins for some, ACCEPT="a name" gives one up (30 min)
	$(SETTING) $(BIN)/python -m pliant.benchmarks.ledger --only "$(ONLY)" $(if $(ACCEPT),--accept "$(ACCEPT)")

attacks: tools ## attack real services as an attacker, an overload or a crash would, and print the targets (ONLY=01 for one)
	$(SETTING) $(BIN)/python -m pytest -s qa/attacks $(if $(ONLY),-k "$(ONLY)")

chaos: MINUTES := 30
chaos: SEED := 0
chaos: tools ## let faults happen to each service under load, MINUTES=30 a system, SEED=0 (ONLY=bins for one)
	PLIANT_CHAOS_MINUTES=$(MINUTES) PLIANT_CHAOS_SEED=$(SEED) $(SETTING) $(BIN)/python -m pytest -s qa/chaos \
		$(if $(ONLY),-k "$(ONLY)")

conformance: tools ## run the field's own clients against live services and print a table (ONLY="openai bins", LONG=1, TEXTS=FILE)
	$(SETTING) $(BIN)/python -m qa.conformance.run --only "$(ONLY)" $(if $(LONG),--long) $(if $(TEXTS),--texts "$(TEXTS)")

nightly: tools ## the fast tests in a random order with fresh examples, then all of qa (ONLY="attacks chaos"); SEED=... repeats a night
	$(SETTING) $(BIN)/python -m qa.nightly --only "$(ONLY)" $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES))

# cosmic-ray plants the faults, from an environment of its own. `check` comes first, as a test that fails anyway catches all.
mutants: COUNT := 100
mutants: SEED := $(or $(SEED),$(shell date +%Y%m%d%H%M%S))
mutants: check ## plant COUNT=100 random faults and count those that the fast tests catch; SEED=... repeats a draw
	$(PYTHON) -m venv .venv/mutants
	.venv/mutants/bin/python -m pip install --quiet cosmic-ray==8.7.0
	@echo "the seed of this draw is $(SEED)"
	$(SETTING) .venv/mutants/bin/python qa/mutants.py --count $(COUNT) --seed $(SEED)

stack: tools ## run the stack of real servers on this machine, to look at (Debian's postgresql, nginx-light, prometheus)
	$(BIN)/python -m qa.stack

stack-test: tools ## test the stack and print the targets (ONLY="whole rules" for some)
	$(BIN)/python -m qa.stack --test $(ONLY)

# OF names the Python of the environment, which is asked for its paths; what is read is the metadata of the packages there.
# The tool would validate for 45 s what tests/test_sbom.py validates in 0.1 s, by the same schema.
sbom: OF := $(BIN)/python
sbom: tools ## write sbom.cdx.json: all that is installed, with versions and licences (CycloneDX 1.6), OF=.venv/bin/python
	$(BIN)/python -m cyclonedx_py environment $(OF) --pyproject pyproject.toml --spec-version 1.6 --output-reproducible \
		--gather-license-texts --no-validate --output-file sbom.cdx.json

site: tools ## build the pages with search into .pliant/site
	$(BIN)/python -m sphinx -q -W -c docs . .pliant/site

lock: tools ## remake the exact pins from the ranges in pyproject.toml
	$(BIN)/uv pip compile --universal --python-version 3.11 --extra dev --extra bench --extra postgres --no-header --no-annotate --no-emit-index-url \
		--no-emit-find-links --no-emit-package pliant-core --no-emit-package pliant --prerelease if-necessary-or-explicit --upgrade \
		pyproject.toml --output-file constraints.txt

clean: ## remove caches and local state, not .venv
	rm -rf .pliant mlruns/mlflow.db mlruns/artifacts .mypy_cache .ruff_cache .pytest_cache .hypothesis
