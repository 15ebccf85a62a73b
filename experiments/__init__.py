"""Experiments from a configuration: every solver on every set, each run in a process of its own, one row a run.

`config.py` reads the protocol, `work.py` and `theory.py` say what a run does, `worker.py` holds it to its limits,
`results.py` keeps the rows, `runner.py` puts them together. `s3vm.inspect.bench` makes a report of the rows.
"""
