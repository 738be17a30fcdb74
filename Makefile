# `make demo` and `make test` set up everything in .venv first.
PYTHON ?= python3
BIN := .venv/bin
DEPLOYED := parquet serve sign

# The environment of test-python: one for each Python, whatever its path, with torch and without.
OTHER := .venv-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')$(if $(filter no,$(TORCH)),-without-torch)

.PHONY: results demo test test-fast test-slow test-lowest test-newest test-python coverage lint docs bench train fuzz soak lock sbom dist test-dist clean

demo: .venv/demo
	$(BIN)/usfda demo

test: .venv/installed
	$(BIN)/pytest

# The unit tests alone.
test-fast: .venv/installed
	$(BIN)/pytest -m "not slow and not integration"

test-slow: .venv/installed
	$(BIN)/pytest -m slow

# The tests with the lowest versions that pyproject.toml allows, in an environment of their own.
test-lowest: .venv-lowest/installed
	.venv-lowest/bin/pytest

# The same with the newest versions that there are, but for torch, which is the build of constraints.txt.
test-newest:
	$(PYTHON) -m venv .venv-newest
	.venv-newest/bin/pip install --quiet --upgrade --upgrade-strategy eager --constraint constraints.txt --editable '.[demo,reproduce,dev]'
	.venv-newest/bin/pytest

# The same with another Python: make test-python PYTHON=python3.13. With TORCH=no, for a Python that has no small build
# of torch, all but torch is installed and the tests that need it are skipped.
test-python: $(OTHER)/installed
	$(OTHER)/bin/pytest

coverage: .venv/installed
	$(BIN)/pytest --cov --cov-report=term-missing:skip-covered

# Kills at random moments, full disks and the like; about half an hour on two free cores. Its table is in docs/reliability.md.
soak: .venv/installed
	PYTHONPATH=tests $(BIN)/python -m soak --kills 200 -o soak-table.md

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The documentation site, docs/_build/html/index.html; a warning, such as a link that leads nowhere, is an error.
docs: .venv/installed
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going docs docs/_build/html

# Needs Office-31: make bench USFDA_OFFICE31=path/to/office31
bench: .venv/installed
	@test -d "$(USFDA_OFFICE31)/amazon" || { echo "set USFDA_OFFICE31 to the folder with amazon, dslr, webcam"; exit 2; }
	$(BIN)/python benchmarks/composites.py
	$(BIN)/python benchmarks/extraction.py $(USFDA_OFFICE31)/amazon
	$(BIN)/python benchmarks/adaptation.py $(USFDA_OFFICE31)
	$(BIN)/python benchmarks/memory.py $(USFDA_OFFICE31)/amazon
	$(BIN)/python benchmarks/many_machines.py $(USFDA_OFFICE31)/amazon
	$(BIN)/python benchmarks/scaling.py

# Every table and figure that is measured by runs, to benchmarks/results: make results DATA=… [RESNET=onnx:FILE]. A night
# on two cores; every step says what it costs, and what is finished is not repeated. Alone: STEPS=compare-families,table2
RUNS ?= results-out
results: .venv/installed
	@test -d "$(DATA)" || { echo "set DATA to the folder of the data sets; benchmarks/results.py says which"; exit 2; }
	$(BIN)/python benchmarks/results.py $(DATA) -o $(RUNS) $(if $(RESNET),--resnet $(RESNET)) $(if $(STEPS),--only $(STEPS))

# The learned decision's weights, docs/training.md: vectors and statistics that are there are not made again.
# make train DATA=… EMOJI=node_modules FURTHER=… OUTPUT=…; other backbones by python -m training.vectors
OUTPUT ?= train-out
SETS ?= all,without-office,without-imagenet-caltech,without-emoji,without-kinds,without-digits
train: export PYTHONPATH := benchmarks:.
train: export OMP_NUM_THREADS := 1
train: .venv/installed
	@test -d "$(DATA)/office31" || { echo "set DATA, EMOJI and FURTHER as docs/training.md says"; exit 2; }
	$(BIN)/pip install --quiet --constraint constraints.txt h5py resvg-py
	$(BIN)/python -m training.vectors $(DATA) $(EMOJI) $(FURTHER) -o $(OUTPUT)
	$(BIN)/python -m training.vectors $(DATA) $(EMOJI) $(FURTHER) -o $(OUTPUT) --tag gradients --backbone gradients \
	    --domains mnist,usps,mnist-m,uci,google,apple,twitter,facebook,clip-art,lines,photographs,signs,toys,studio,web
	for tag in bands pixels; do $(BIN)/python -m training.vectors $(DATA) $(EMOJI) $(FURTHER) -o $(OUTPUT) --tag $$tag; done
	$(BIN)/python -m training.generate -o $(OUTPUT) --tag made --sources 180
	for tag in $$(ls $(OUTPUT)/vectors | grep -v npz); do $(BIN)/python -m training.generate -o $(OUTPUT) --tag $$tag; done
	$(BIN)/python -m training.train -o $(OUTPUT) --tags made,$$(ls $(OUTPUT)/vectors | grep -v npz | paste -sd,) --sets $(SETS)
	cp $(OUTPUT)/weights/*.safetensors src/usfda/methods/mixture/weights/

# What an installation for use consists of, to the version. torch is the build of constraints.txt, whatever it is here:
# its local mark is left out, and so are hashes, which are those of one build.
lock: .venv-lock/installed
	CUSTOM_COMPILE_COMMAND="make lock" .venv-lock/bin/pip-compile --quiet --upgrade --allow-unsafe --strip-extras \
	    --no-emit-options --annotation-style line --constraint constraints.txt $(addprefix --extra ,$(DEPLOYED)) \
	    --output-file requirements.lock pyproject.toml
	sed 's/+cpu//' requirements.lock > requirements.lock.new && mv requirements.lock.new requirements.lock

# The same as an SBOM in the format CycloneDX. It depends on the lock alone: no addresses, nothing about the tool.
sbom: .venv-lock/installed
	.venv-lock/bin/cyclonedx-py requirements requirements.lock --pyproject pyproject.toml --output-reproducible \
	    | .venv-lock/bin/python -c 'import json, sys; bom = json.load(sys.stdin); del bom["metadata"]["tools"]; \
	    [part.pop("externalReferences") for part in bom["components"]]; print(json.dumps(bom, indent=1))' > sbom.cdx.json

# What is published: an sdist, the wheel that is made of it, and what the package index would say about both.
dist: .venv/installed
	rm -rf dist build src/*.egg-info
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*

# The wheel in an environment with nothing else, away from this checkout.
test-dist: dist
	set -e; place=$$(mktemp -d); trap 'rm -rf "$$place"' EXIT; \
	$(PYTHON) -m venv $$place/venv; \
	$$place/venv/bin/pip install --quiet --constraint constraints.txt "$$(echo dist/usfda-*.whl)[demo]"; \
	cd $$place; export PATH=$$place/venv/bin:$$PATH USFDA_CACHE=$$place/cache; \
	usfda --version; \
	usfda demo; \
	usfda procure demo-out/uci --backbone pixels --for mixture -o vendor.usfda; \
	usfda adapt vendor.usfda demo-out/mnist -o client.usfda; \
	usfda predict client.usfda demo-out/mnist/0 -o labels.csv

# Coverage-guided fuzzing, docs/fuzzing.md: make fuzz FUZZ_RUNS=10000 FUZZ_SEED=2
FUZZ_RUNS ?= 1000000
FUZZ_SEED ?= 1
fuzz: .venv/installed
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[demo,reproduce,dev,fuzz]'
	$(BIN)/python -m fuzz --runs $(FUZZ_RUNS) --seed $(FUZZ_SEED)

# The constraints file pins torch; where a CPU build of it is at hand, pip takes that one.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[demo,reproduce,dev]'
	touch .venv/demo $@

# A newcomer's first look needs far less than the tests do.
.venv/demo: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[demo]'
	touch $@

.venv-lowest/installed: pyproject.toml constraints-lowest.txt
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/pip install --quiet --constraint constraints-lowest.txt --editable '.[demo,reproduce,dev]'
	touch $@

.venv-lock/installed:
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/pip install --quiet 'cyclonedx-bom>=7' 'pip-tools>=7.4'
	touch $@

$(OTHER)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(OTHER)
ifeq ($(TORCH),no)
	$(OTHER)/bin/python tests/without_torch.py > $(OTHER)/requirements.txt
	$(OTHER)/bin/pip install --quiet --constraint constraints.txt --requirement $(OTHER)/requirements.txt
	$(OTHER)/bin/pip install --quiet --no-deps --editable .
else
	$(OTHER)/bin/pip install --quiet --constraint constraints.txt --editable '.[demo,reproduce,dev]'
endif
	touch $@

clean:
	rm -rf .venv .venv-* demo-out build dist docs/_build docs/generated src/*.egg-info
