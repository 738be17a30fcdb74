# `make demo` and `make test` set up everything in .venv first.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-slow test-lowest coverage lint bench clean

demo: .venv/installed
	$(BIN)/usfda demo

test: .venv/installed
	$(BIN)/pytest

test-slow: .venv/installed
	$(BIN)/pytest -m slow

# The tests with the lowest versions that pyproject.toml allows, in an environment of their own.
test-lowest: .venv-lowest/installed
	.venv-lowest/bin/pytest

coverage: .venv/installed
	$(BIN)/pytest --cov --cov-report=term-missing:skip-covered

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Needs Office-31: make bench USFDA_OFFICE31=path/to/office31
bench: .venv/installed
	@test -d "$(USFDA_OFFICE31)/amazon" || { echo "set USFDA_OFFICE31 to the folder with amazon, dslr, webcam"; exit 2; }
	$(BIN)/python benchmarks/composites.py
	$(BIN)/python benchmarks/extraction.py $(USFDA_OFFICE31)/amazon
	$(BIN)/python benchmarks/adaptation.py $(USFDA_OFFICE31)
	$(BIN)/python benchmarks/memory.py $(USFDA_OFFICE31)/amazon
	$(BIN)/python benchmarks/scaling.py

# The constraints file pins torch; where a CPU build of it is at hand, pip takes that one.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[demo,reproduce,dev]'
	touch $@

.venv-lowest/installed: pyproject.toml constraints-lowest.txt
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/pip install --quiet --constraint constraints-lowest.txt --editable '.[demo,reproduce,dev]'
	touch $@

clean:
	rm -rf .venv .venv-lowest demo-out build src/*.egg-info
