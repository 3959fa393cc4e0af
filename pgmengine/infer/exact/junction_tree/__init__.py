"""Elimination: factors of the free units, elimination orders, and messages on junction trees."""
