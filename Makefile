# Two commands do everything on a fresh machine with Python 3.11 or later: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test clean

demo: .venv/demo
	$(BIN)/python examples/demo.py

test: .venv/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q

# An empty file marks what is installed, so that a second call installs nothing.
.venv/demo: pyproject.toml | .venv/bin/python
	$(BIN)/pip install --quiet --editable ".[report]"
	touch $@

.venv/test: pyproject.toml | .venv/bin/python
	$(BIN)/pip install --quiet --editable ".[test]"
	touch $@

.venv/bin/python:
	$(PYTHON) -m venv .venv

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis
