# On a fresh machine with Python 3.11 or later: `make demo`, `make test` and `make docs` install what they need.
PYTHON ?= python3
OLDEST_PYTHON ?= python3.11
BIN := .venv/bin
export PYTHONDONTWRITEBYTECODE :=  # the tests start many processes, and each would compile what it imports

.PHONY: demo test test-long evaluation coverage soak docs dist smoke clean

demo: .venv/demo
	$(BIN)/s3vm demo --picture demo.png

# Three processes on two cores, since some tests wait for others. Beside mypy, one of them compiles the bytecode for all.
test: .venv/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m pytest -qq --collect-only > /dev/null & $(BIN)/mypy && wait
	$(BIN)/python -m pytest -q -rs -n 3 --dist loadfile --no-loadscope-reorder

# Many more cases, then other people's tools, then the tests again with the oldest versions that pyproject.toml allows (an
# hour or two).
LONGEST := tests/test_fuzz.py tests/test_properties.py
test-long: .venv/test .venv-tools/test .venv-oldest/test
	S3VM_LONG=1 $(BIN)/python -m pytest -q -n 3 --dist worksteal $(LONGEST)
	S3VM_LONG=1 $(BIN)/python -m pytest -q -n 3 --dist loadfile --no-loadscope-reorder $(LONGEST:%=--ignore=%)
	.venv-tools/bin/python -m pytest -q -n 3 tests/test_ecosystem.py
	.venv-oldest/bin/python -m pytest -q -n 3 --dist loadfile --no-loadscope-reorder

# An experiment and its report: `make evaluation CONFIG=experiments/evaluation.toml` for the paper's.
CONFIG ?= experiments/quick.toml
RESULTS = $(notdir $(CONFIG:.toml=))
evaluation: .venv/experiments
	$(BIN)/python -m experiments bench $(CONFIG) -o $(RESULTS).parquet
	$(BIN)/python -m experiments report $(RESULTS).parquet

# Rows without end for half an hour: `make soak MINUTES=5` for less.
MINUTES ?= 30
soak: .venv/test
	$(BIN)/python benchmarks/soak.py --minutes $(MINUTES)

# How much of the Python code the tests run, except for the GPU's. Left out are the contract of all solvers and the fuzzers,
# which are slow and reach no further lines, and forks and Ctrl-C at any moment, which may come while coverage holds a lock.
# Coverage cannot see inside what Numba compiles, so the small tests of those functions run again with the JIT off.
NOT := not gpu and not test_contract and not test_fuzz and not at_any_moment and not test_forks
SMALL := never_changes or independent or in_small or (cpu and (formula or sparse_rows or number_of_columns))
coverage: .venv/test
	rm -f .coverage .coverage.*
	$(BIN)/coverage run -m pytest -q -n 3 --dist loadfile --no-loadscope-reorder -k "$(NOT)"
	NUMBA_DISABLE_JIT=1 $(BIN)/coverage run -m pytest -q -n 2 tests/test_backends.py tests/test_incremental.py tests/test_solvers.py -k "$(SMALL)"
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --fail-under=95

docs: .venv/docs
	$(BIN)/sphinx-build --fail-on-warning --keep-going docs docs/_build/html

# The wheel and the sdist; `smoke` tries what they promise in fresh environments (some minutes).
dist: .venv/dist
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*

smoke: dist
	$(BIN)/python packaging/smoke.py dist/*.whl dist/*.tar.gz

# uv needs a third of pip's time, but does not read pip's settings: where it is missing or finds nothing, pip installs.
WITH_UV := pip install --quiet uv && .venv/bin/uv pip install --quiet --python .venv/bin/python

# An empty file marks what is installed, so that a second call installs nothing.
.venv/demo: pyproject.toml | .venv/bin/python
	$(BIN)/pip install --quiet --editable ".[cli,report]"
	touch $@

.venv/experiments: pyproject.toml | .venv/bin/python
	$(BIN)/pip install --quiet --editable ".[experiments]"
	touch $@

.venv/test: pyproject.toml | .venv/bin/python
	$(BIN)/$(WITH_UV) --editable ".[test]" || $(BIN)/pip install --quiet --editable ".[test]"
	touch $@

.venv-tools/test: pyproject.toml tests/ecosystem/requirements.txt
	$(PYTHON) -m venv .venv-tools
	.venv-tools/bin/pip install --quiet --editable ".[test]" --requirement tests/ecosystem/requirements.txt
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
	rm -rf .venv .venv-oldest .venv-tools .coverage* dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache docs/_build docs/auto_examples docs/generated docs/sg_execution_times.rst
