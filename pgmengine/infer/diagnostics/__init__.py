"""Diagnostics: whether chains, importance weights, digits and bounds carry an answer."""
