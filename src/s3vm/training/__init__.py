"""The loop that drives any solver, and what watches, stops and saves a run."""
