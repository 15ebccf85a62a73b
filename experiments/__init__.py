"""The paper's evaluation: every solver on every set, each run in a process of its own, one row per run.

`config.py` reads an experiment, `plan.py` lists its runs, `work.py` and `theory.py` make one, `worker.py` holds it to
its limits, `results.py` keeps the rows, `runner.py` connects them. `report/` makes a page of the rows.
"""
