"""Draws of chains: starts, sums, memory, and the comparison with exact conditionals of blocks."""
