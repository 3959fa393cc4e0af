"""Learning from all rows at once: the objective, expected counts, and the run that keeps both."""
