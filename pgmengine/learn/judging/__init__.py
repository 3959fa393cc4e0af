"""Judging fits: information criteria, comparison on held-out rows, and the error of learning."""
