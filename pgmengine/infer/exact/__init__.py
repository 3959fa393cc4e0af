"""Exact answers by enumeration of a cover."""
