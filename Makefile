# Every target sets itself up: a virtual environment in .venv, the package in it
# (editable) and what the target needs. Stamp files remember what is installed, so
# that this happens once, and again only after pyproject.toml has changed.

PYTHON ?= python3
VENV ?= .venv
PYTEST_ARGS ?= -n auto --maxprocesses=4 --dist loadfile
SPHINX_ARGS ?=
# A file for pip that says which versions to install: none, or those of test-oldest.
CONSTRAINTS ?=
# The pieces of a fit alone: make benchmark BENCHMARKS=tests/benchmarks/bench_pieces.py
BENCHMARKS ?= $(sort $(wildcard tests/benchmarks/bench_*.py))
BENCHMARK_ARGS ?=

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
SOURCES := keql tests examples doc .ci
# Ruff reads its settings from a file of its own or from pyproject.toml, not from
# setup.cfg; its defaults are what we want, so only the rules are named, here.
RUFF_RULES := E,F,W,I,B,UP,NPY,BLE,FIX,RUF100
# A package hands on in its __init__ what others need of it, public or not.
RUFF_IGNORE := __init__.py:F401

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo test test-slow test-oldest coverage lint doc benchmark dist clean

help:  ## list the targets (the default)
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-11s %s\n", $$1, $$2}' Makefile

# One BLAS thread: the matrices are small, the tests run in several processes, and more
# threads than free cores make all of them slow.
demo test test-slow coverage doc benchmark dist: export OMP_NUM_THREADS := 1
demo test test-slow coverage doc benchmark dist: export OPENBLAS_NUM_THREADS := 1

demo: $(VENV)/stamp-core  ## learn an equation from scattered data and draw it
	$(BIN)/python examples/demo.py

test: $(VENV)/stamp-test  ## run the tests and the examples of the docstrings
	$(BIN)/python -m pytest -m "not slow" $(PYTEST_ARGS)

test-slow: $(VENV)/stamp-test  ## run the tests that take long, which "test" leaves out
	$(BIN)/python -m pytest -m slow $(PYTEST_ARGS)

test-oldest:  ## run the tests with the oldest versions of what keql needs
	@$(MAKE) --no-print-directory test VENV=.venv-oldest CONSTRAINTS=tests/oldest.txt

coverage: $(VENV)/stamp-test  ## list the lines that no test runs; fails below 95 %
	$(BIN)/python .ci/measure_coverage.py -m "not slow" $(PYTEST_ARGS)

lint: $(VENV)/stamp-lint  ## check style, format, docstrings and types
	$(BIN)/ruff check --select $(RUFF_RULES) --per-file-ignores $(RUFF_IGNORE) \
	    $(wildcard $(SOURCES))
	$(BIN)/ruff format --check $(wildcard $(SOURCES))
	$(BIN)/python .ci/validate_docstrings.py
	$(BIN)/python -m mypy

# From scratch every time (-E): pages kept from a build that failed would not warn
# again, those of objects that are gone would stay, and examples would not run again.
doc: $(VENV)/stamp-doc  ## build the documentation in doc/_build/html
	rm -rf doc/generated doc/auto_examples doc/sg_execution_times.rst
	$(BIN)/python -m sphinx -E -W --keep-going -q $(SPHINX_ARGS) doc doc/_build/html
	$(BIN)/python .ci/check_site.py doc/_build/html
	@echo "The documentation is in doc/_build/html/index.html"

benchmark: $(VENV)/stamp-benchmark  ## run the benchmarks of tests/benchmarks
	@set -e; for script in $(BENCHMARKS); do \
	    echo "== $$script"; $(BIN)/python $$script $(BENCHMARK_ARGS); done

# The tests of the source archive run with the wheel, in an environment with nothing
# else: "pytest", unlike "python -m pytest", does not put the folder on the path.
dist: $(VENV)/stamp-release  ## build both archives in dist, check and test them
	rm -rf dist build .venv-wheel
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/python -m pip --disable-pip-version-check -q install \
	    "$$(ls dist/keql-*.whl)[test]"
	mkdir -p build/source
	tar -xzf dist/keql-*.tar.gz -C build/source --strip-components=1
	cd build/source && KEQL_INSTALLED_IN=$(CURDIR)/.venv-wheel \
	    ../../.venv-wheel/bin/pytest tests -m "not slow" $(PYTEST_ARGS)

clean:  ## remove the environment and everything generated
	rm -rf $(VENV) .venv-oldest .venv-wheel keql.egg-info build dist doc/_build doc/generated doc/auto_examples
	rm -rf .mypy_cache .pytest_cache .ruff_cache
	find $(wildcard $(SOURCES)) -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "keql needs Python 3.11 or later, and '$(PYTHON)' is not; name another" \
	         "one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	    echo "'$(PYTHON)' cannot create virtual environments: its venv and ensurepip" \
	         "modules are missing. Install them (Debian and Ubuntu: the package" \
	         "python3-venv) or name another Python: make PYTHON=/path/to/python3" >&2; \
	    exit 1; }
	@echo "Creating the virtual environment $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/stamp-core: pyproject.toml $(CONSTRAINTS) | $(BIN)/python
	@echo "Installing keql and what it needs (a minute or two, once)"
	@$(PIP) install $(CONSTRAINTS:%=--constraint %) --editable .
	@touch $@

# "stamp-test" is the package with its extra "test", and so on.
$(VENV)/stamp-%: pyproject.toml $(CONSTRAINTS) | $(BIN)/python
	@echo "Installing keql with the extra '$*' (a minute or two, once)"
	@$(PIP) install $(CONSTRAINTS:%=--constraint %) --editable ".[$*]"
	@touch $@
