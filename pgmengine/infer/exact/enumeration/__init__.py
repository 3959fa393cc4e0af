"""Enumeration of the states of a cover, in compiled code or numpy."""
