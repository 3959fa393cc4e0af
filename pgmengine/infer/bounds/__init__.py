"""Proven bounds of log Z on both sides."""
