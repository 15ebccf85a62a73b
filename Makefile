# On a fresh machine with Python 3.11 or later: `make demo`, `make test` and `make docs` install what they need.
PYTHON ?= python3
OLDEST_PYTHON ?= python3.11
BIN := .venv/bin

.PHONY: demo test test-long soak docs dist smoke clean

demo: .venv/demo
	$(BIN)/python examples/demo.py

test: .venv/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -n 2 --dist loadfile

# Many more cases of everything, then the tests again with the oldest versions that pyproject.toml allows (hours).
test-long: .venv/test .venv-oldest/test
	S3VM_LONG=1 $(BIN)/python -m pytest -q -n 2 --dist loadfile
	.venv-oldest/bin/python -m pytest -q -n 2 --dist loadfile

# Rows without end for half an hour: `make soak MINUTES=5` for less.
MINUTES ?= 30
soak: .venv/test
	$(BIN)/python benchmarks/soak.py --minutes $(MINUTES)

docs: .venv/docs
	$(BIN)/sphinx-build --fail-on-warning --keep-going docs docs/_build/html

# The wheel and the sdist, and whether what they promise works where nothing but them is installed (some minutes).
dist: .venv/dist
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*

smoke: dist
	$(BIN)/python packaging/smoke.py dist/*.whl dist/*.tar.gz

# An empty file marks what is installed, so that a second call installs nothing.
.venv/demo: pyproject.toml | .venv/bin/python
	$(BIN)/pip install --quiet --editable ".[report]"
	touch $@

.venv/test: pyproject.toml | .venv/bin/python
	$(BIN)/pip install --quiet --editable ".[test]"
	touch $@

.venv-oldest/test: pyproject.toml packaging/oldest.py
	$(OLDEST_PYTHON) -m venv .venv-oldest
	$(OLDEST_PYTHON) packaging/oldest.py > .venv-oldest/oldest.txt
	.venv-oldest/bin/pip install --quiet --constraint .venv-oldest/oldest.txt --editable ".[test]"
	touch $@

.venv/dist: | .venv/bin/python
	$(BIN)/pip install --quiet build twine
	touch $@

.venv/docs: pyproject.toml | .venv/bin/python
	$(BIN)/pip install --quiet --editable ".[docs]"
	touch $@

.venv/bin/python:
	$(PYTHON) -m venv .venv

clean:
	rm -rf .venv .venv-oldest dist .mypy_cache .pytest_cache .ruff_cache .hypothesis docs/_build docs/auto_examples docs/generated docs/sg_execution_times.rst
