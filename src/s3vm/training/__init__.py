"""The loop that drives any solver, and what records, stops and saves a run."""
