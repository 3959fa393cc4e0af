"""Draws of chains: their starts, their sums, their memory, and a comparison with exact blocks."""
