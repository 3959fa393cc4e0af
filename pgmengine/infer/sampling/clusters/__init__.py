"""Chains that move clusters of units at once."""
