"""Sums over chains of units that one shared table joins, for rows of all lengths in one pass."""
