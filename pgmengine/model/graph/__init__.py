"""The graph of single units, and orders over it."""
