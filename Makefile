# Everything runs in a virtual environment of its own, made on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PEERS := .venv-peers

.PHONY: demo test lint docs bench clean

demo: $(VENV)/demo.stamp
	$(BIN)/bilevax run hypercleaning --out runs/demo --resume
	$(BIN)/bilevax report runs/demo -o runs/demo.html

test: $(VENV)/dev.stamp
	$(BIN)/python -m pytest -n auto --durations=15

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

docs: $(VENV)/docs.stamp
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(PEERS)/bench.stamp
	$(PEERS)/bin/python -m benchmarks.peers

clean:
	rm -rf $(VENV) $(PEERS) dist

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("bilevax needs Python 3.11 or newer, $(PYTHON) is %d.%d: run make PYTHON=python3.11" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo.stamp: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[tools]'
	touch $@

$(VENV)/dev.stamp: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

$(VENV)/docs.stamp: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	touch $@

$(PEERS)/bench.stamp: pyproject.toml benchmarks/peers/requirements.txt
	$(PYTHON) -m venv $(PEERS)
	echo '*' > $(PEERS)/.gitignore
	$(PEERS)/bin/python -m pip install --quiet --editable '.[bench]'
	$(PEERS)/bin/python -m benchmarks.peers.install
	touch $@
