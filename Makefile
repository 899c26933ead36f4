# Meshwright. `make demo` and `make test` need Python 3.11 or later and nothing else.
#
# Variables:
#   PYTHON           the interpreter that makes the virtual environment (default: the first of python3.11
#                    to python3.14 that starts)
#   TORCH_INDEX_URL  a further package index to take torch from. On Linux, PyPI's own torch wheel
#                    brings gigabytes of CUDA libraries; pytorch.org names the index of the
#                    official CPU wheels: make demo TORCH_INDEX_URL=...
#   PIP_EXTRA_INDEX_URL, PIP_INDEX_URL and pip's other variables work as ever.
#   TESTS            what `make test` runs (default tests)
#   WORKERS          how many processes run the tests side by side (default 2)
#   PYTEST_ARGS      further arguments for pytest

PYTHON ?= $(firstword $(foreach minor,11 12 13 14,$(shell \
    python3.$(minor) -c 'print("python3.$(minor)")' 2>/dev/null)) python3.11)
VENV ?= .venv
TORCH_INDEX_URL ?=
TESTS ?= tests
PYTEST_ARGS ?=
WORKERS ?= 2
COVERAGE_FLOOR ?= 90

BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check \
    --constraint constraints.txt $(if $(TORCH_INDEX_URL),--extra-index-url $(TORCH_INDEX_URL))
RUNTIME := $(VENV)/.installed-runtime
DEVELOPMENT := $(VENV)/.installed-development
DOCUMENTATION := .venv-docs/.installed

# Of the parity matrix, what runs in fp32 and 16 bits.
KERNEL_TESTS := tests/distributed/test_parity_rounding.py tests/distributed/test_parity_state.py \
    tests/distributed/test_numerics.py -k "rounding or numerics or fp16 or bf16 or fp32"

export OMP_NUM_THREADS ?= 1
# Commands and tests start hundreds of processes, each of which would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo serve test test-chaos test-exports test-full test-fuzz test-guards test-kernels test-parity test-pythons test-wheel docs check check-all format lint types imports bench clean

help:  ## say what there is to make
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

install: $(RUNTIME)  ## make .venv with the planner, the service and the executor

demo: $(RUNTIME)  ## plan, store, compare, profile this machine, train on it, and measure
	@$(BIN)/meshwright demo

serve: $(RUNTIME)  ## serve the REST interface and the dashboard
	@$(BIN)/meshwright serve

test: $(DEVELOPMENT)  ## run the tests: each fact, on a sample where many cases show the same
	$(BIN)/python -m pytest $(TESTS) --numprocesses $(WORKERS) --dist worksteal $(PYTEST_ARGS)

test-full: MARKS := -m ""
test-full: test-kernels test-exports test-wheel test-guards test-chaos  ## run everything there is: an hour and more
	MESHWRIGHT_TESTS=full MESHWRIGHT_FUZZ_EXAMPLES=$(or $(EXAMPLES),200) $(BIN)/python -m pytest \
	    tests -m "" --numprocesses $(WORKERS) --dist worksteal $(PYTEST_ARGS)

test-parity: $(DEVELOPMENT)  ## run the whole parity matrix, the long half too
	MESHWRIGHT_TESTS=full $(BIN)/python -m pytest tests/distributed -m "distributed or parity_full" \
	    $(PYTEST_ARGS)

test-kernels: $(DEVELOPMENT)  ## run what rounds with the plainest kernels, as on an older processor
	ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 $(BIN)/python -m pytest $(KERNEL_TESTS) \
	    $(PYTEST_ARGS)

test-chaos: $(DEVELOPMENT)  ## play 200 rounds of faults on a service and two agents (ROUNDS, SEED)
	$(BIN)/python -m tests.chaos --rounds $(or $(ROUNDS),200) --seed $(or $(SEED),1)

test-guards: $(DEVELOPMENT)  ## take each guard of the agents' protocol out, and see its tests fail
	$(BIN)/python -m tests.chaos.mutants

test-exports: $(DEVELOPMENT)  ## hold exports against the frameworks' own parsers, beside .venv
	bash tests/exports/environment.sh .venv-exports $(BIN)/python
	.venv-exports/bin/python -m pytest tests/exports --numprocesses $(WORKERS) -p no:cacheprovider \
	    --timeout 900 -W default $(MARKS) $(PYTEST_ARGS)

test-fuzz: $(DEVELOPMENT)  ## send the service generated requests by the thousand (EXAMPLES, SECONDS)
	MESHWRIGHT_FUZZ_EXAMPLES=$(or $(EXAMPLES),200) $(BIN)/python -m pytest \
	    tests/contract/api/test_fuzzing.py tests/contract/api/test_fuzzing_coverage.py \
	    tests/contract/api/test_agent_fuzzing.py tests/contract/test_fuzzed_documents.py \
	    -m "slow or full" --numprocesses $(WORKERS) --dist worksteal \
	    --session-timeout $(or $(SECONDS),3600) $(PYTEST_ARGS)

test-wheel: $(DEVELOPMENT)  ## build the wheel, install it into a clean environment, plan with it
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'hatchling>=1.27'
	$(BIN)/python -m tests.wheel.smoke

test-pythons: $(DEVELOPMENT)  ## test the wheel on every Python from 3.11 to 3.14 that is here (VERSIONS)
	$(BIN)/python -m tests.wheel.pythons $(if $(VERSIONS),--versions $(VERSIONS)) \
	    -- --numprocesses $(WORKERS) --dist worksteal $(PYTEST_ARGS)

check: format lint types imports  ## what every change must pass, in under three minutes
	$(BIN)/python -m pytest tests/unit tests/golden tests/contract --numprocesses 2 \
	    -m "not distributed and not browser and not parity_full and not full" \
	    --cov --cov-report term:skip-covered --cov-fail-under $(COVERAGE_FLOOR) $(PYTEST_ARGS)

check-all: format lint types imports test  ## check, and the distributed and browser tests

format: $(DEVELOPMENT)
	$(BIN)/ruff format --check

lint: $(DEVELOPMENT)
	$(BIN)/ruff check

types: $(DEVELOPMENT)
	$(BIN)/mypy

imports: $(DEVELOPMENT)
	$(BIN)/lint-imports

docs: $(DOCUMENTATION)  ## build the documentation as a site with a search, and say how to look at it
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict --quiet
	@echo "now: $(PYTHON) -m http.server --bind 127.0.0.1 --directory .site 8080"

bench: $(DEVELOPMENT)  ## measure the planner against its bars
	$(BIN)/python -m benchmarks.planning

clean:  ## remove the virtual environment and what the demo left
	rm -rf $(VENV) .venv-docs .site .demo .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || \
	    { echo "error: $(PYTHON) is not on the PATH; install Python 3.11 or later, or set PYTHON" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(DOCUMENTATION): constraints.txt
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check \
	    --constraint constraints.txt mkdocs-material
	@touch $@

$(RUNTIME): pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing Meshwright into $(VENV)"
	$(PIP_INSTALL) --editable '.[service,executor]'
	@touch $@

$(DEVELOPMENT): $(RUNTIME)
	@echo "installing the tests' tools into $(VENV)"
	$(PIP_INSTALL) --editable '.[service,executor,dev]'
	@# its own pin of typer is older than ours; it runs with either
	$(PIP_INSTALL) --no-deps openapi-python-client
	@touch $@
