# `make demo` and `make test` set up everything in .venv first.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint bench clean

demo: .venv/installed
	$(BIN)/usfda demo

test: .venv/installed
	$(BIN)/pytest

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

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
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[demo,dev]'
	touch $@

clean:
	rm -rf .venv demo-out build src/*.egg-info
