# Everything runs in a virtual environment of its own, made on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PEERS := .venv-peers
MINIMUM := .venv-min
MODELS := .venv-models

# Where data sets are, if there is a folder of them next to the repository.
ifneq ($(wildcard ../shared/data),)
export BILEVAX_DATA ?= $(abspath ../shared/data)
endif

# Tests start hundreds of processes: each would compile all that it imports, if none may keep bytecode.
unexport PYTHONDONTWRITEBYTECODE

# Each worker gets half of the tests, file by file, and takes over some of the other's at the end.
PYTEST := -m pytest -n auto --dist worksteal
# What is run once more with the oldest dependencies.
CORE := $(addprefix tests/core/test_,errors.py prepared.py transforms.py visible.py) tests/rules/test_implicit.py
# What is run once more with the libraries that its pages bring models from.
PAGES := tests/core/test_package.py::test_every_peer_block_runs

.PHONY: demo test test-all test-eager test-minimum test-models environments lint docs bench clean

demo: $(VENV)/demo.stamp
	$(BIN)/bilevax run hypercleaning --out runs/demo --resume
	$(BIN)/bilevax report runs/demo -o runs/demo.html

test: $(VENV)/dev.stamp
	$(BIN)/python $(PYTEST) --durations=15 -m 'not slow'

# The site is built and opened, too.
test-all: $(VENV)/dev.stamp $(VENV)/docs.stamp test-eager test-minimum test-models
	$(BIN)/python $(PYTEST) --durations=15

test-eager: $(VENV)/dev.stamp
	JAX_DISABLE_JIT=1 $(BIN)/python $(PYTEST) -m 'eager and not slow' tests/core

test-minimum: $(MINIMUM)/stamp
	$(MINIMUM)/bin/python $(PYTEST) -m 'not slow' $(CORE)

# Models of other libraries: PyTorch, Flax, Haiku, Keras; and the pages that use them.
test-models: $(MODELS)/stamp
	KERAS_BACKEND=jax $(MODELS)/bin/python $(PYTEST) --durations=5 tests/pytorch src/bilevax/torch $(PAGES)

# What test-all needs besides .venv; two installations side by side, with make -j2.
environments: $(MINIMUM)/stamp $(MODELS)/stamp

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

docs: $(VENV)/docs.stamp
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(PEERS)/bench.stamp
	$(PEERS)/bin/python -m benchmarks.peers
	$(PEERS)/bin/python -m benchmarks.answer

clean:
	rm -rf $(VENV) $(PEERS) $(MINIMUM) $(MODELS) dist

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("bilevax needs Python 3.11 or newer, $(PYTHON) is %d.%d: run make PYTHON=python3.11" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

# Only what is imported is compiled to bytecode: that halves the time of the installation.
$(VENV)/demo.stamp: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[tools]'
	touch $@

$(VENV)/dev.stamp: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[dev]'
	touch $@

$(VENV)/docs.stamp: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[docs]'
	touch $@

$(PEERS)/bench.stamp: pyproject.toml benchmarks/peers/requirements.txt
	$(PYTHON) -m venv $(PEERS)
	echo '*' > $(PEERS)/.gitignore
	$(PEERS)/bin/python -m pip install --quiet --editable '.[bench]'
	$(PEERS)/bin/python -m benchmarks.peers.install
	touch $@

# The lowest versions that pyproject.toml allows.
$(MINIMUM)/stamp: pyproject.toml
	$(PYTHON) -m venv --clear $(MINIMUM)
	echo '*' > $(MINIMUM)/.gitignore
	$(PYTHON) -c 'import tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; print(*(x.replace(">=", "==") for x in project["dependencies"]), sep="\n")' > $(MINIMUM)/lowest.txt
	$(MINIMUM)/bin/python -m pip install --quiet --no-compile --editable . --constraint $(MINIMUM)/lowest.txt hypothesis pytest pytest-xdist
	touch $@

$(MODELS)/stamp: pyproject.toml
	$(PYTHON) -m venv $(MODELS)
	echo '*' > $(MODELS)/.gitignore
	$(MODELS)/bin/python -m pip install --quiet --no-compile --editable '.[models]' hypothesis pytest pytest-xdist
	touch $@
