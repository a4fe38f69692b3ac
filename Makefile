# `make export` sets up and exports the embedded model; `make test` sets up and passes all tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: setup export test lint bench clean

setup: $(VENV)/.done

$(VENV)/.done: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] < (3, 11) and "edgekit needs Python 3.11 or later")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[cpu,coreml,executorch,web,test,dev]'
	touch $@

export: setup
	$(BIN)/edgekit export

test: setup lint
	$(BIN)/python -m pytest -n 2 --dist loadgroup

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup
	$(BIN)/python -m pytest tests/bench --override-ini testpaths=tests/bench -m bench -s

clean:
	rm -rf $(VENV) build
