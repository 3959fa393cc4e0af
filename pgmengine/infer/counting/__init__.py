"""Exact sums by counting the models of Boolean formulas."""
