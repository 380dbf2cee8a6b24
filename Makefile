# balancesim: `make help` lists what can be done. The first target that needs it makes .venv from requirements.lock.

SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
NAME ?= dense_urban
PAPER ?= pipeline
WORKERS ?= 2
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup scenario compare reproduce regime-map validate bench bench-pipeline bench-solver bench-batches test lint theory \
	coverage lock clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 24

setup: $(STAMP) ## make the virtual environment (done by every other target on its own)

$(STAMP): requirements.lock setup.cfg pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "balancesim needs Python 3.11 or newer: make PYTHON=python3.11 ..."; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null \
		|| { echo "this Python cannot make virtual environments; on Debian: apt install python3-venv"; exit 2; }
	@echo "Making $(VENV) from requirements.lock and compiling the decision kernels (once, about two minutes) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@$(BIN)/python -m balancesim.precompile
	@touch $@

scenario: $(STAMP) ## run a scenario under its policies and compare them: make scenario NAME=dense_urban
	@$(BIN)/balancesim compare $(NAME) --workers $(WORKERS) $(ARGS)

compare: $(STAMP) ## print the comparison of results that are there: make compare NAME=dense_urban
	@$(BIN)/balancesim compare results/$(NAME) $(ARGS)

reproduce: $(STAMP) ## rerun a paper's evaluation, its values beside ours: make reproduce PAPER=balance or PAPER=pipeline
	@$(BIN)/python -m analysis.reproduce.$(PAPER) $(ARGS)

regime-map: $(STAMP) ## map when a hybrid of AD and SD pays: deadlines, memory, spread of lengths, cost law
	@$(BIN)/python -m analysis.regime_map $(ARGS)

validate: $(STAMP) ## compare the measured cost law with whole requests and speculation on real GPUs
	@$(BIN)/python -m analysis.validation $(ARGS)

bench: $(STAMP) ## measure the speed and memory of the simulator
	@$(BIN)/python -m benchmarks.bench_simulate $(ARGS)

bench-pipeline: $(STAMP) ## measure the speed and gaps of the two-node pipeline's optimisers
	@$(BIN)/python -m benchmarks.bench_pipeline $(ARGS)

bench-solver: $(STAMP) ## measure the speed of BALANCE's decision and its gap to the exact optimum
	@$(BIN)/python -m benchmarks.bench_solver $(ARGS)

bench-batches: $(STAMP) ## measure what a third and a fourth batch add on contested problems
	@$(BIN)/python -m benchmarks.bench_batches $(ARGS)

test: lint ## lint, types and the fast tests
	@$(BIN)/python -m pytest -q -n 2 -m "not slow" $(ARGS)

lint: $(STAMP) ## style and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet . || { echo "run: $(BIN)/ruff format ."; exit 1; }
	@$(BIN)/mypy

theory: $(STAMP) ## the slow statistical tests
	@$(BIN)/python -m pytest -q -n 2 -m slow $(ARGS)

coverage: $(STAMP) ## line coverage of the fast tests; compiled kernels run once more as Python so that they count
	@$(BIN)/python -m pytest -q -n 2 -m "not slow" --cov --cov-report= $(ARGS)
	@NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest -q -n 2 tests/test_policies.py tests/test_precompile.py \
		--cov --cov-append --cov-report=term --cov-fail-under=95

lock: $(STAMP) ## renew requirements.lock
	@$(BIN)/python -m pip install --quiet pip-tools
	@$(BIN)/pip-compile --quiet --strip-extras --generate-hashes --allow-unsafe --no-emit-index-url \
		--no-emit-find-links --no-emit-trusted-host --extra test -o requirements.lock setup.cfg build-requirements.in

clean: ## remove what the targets made, except results
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build *.egg-info .coverage*
