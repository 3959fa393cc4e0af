"""Exact answers by enumeration of a cover and by elimination."""
