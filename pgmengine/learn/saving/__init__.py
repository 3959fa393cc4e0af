"""Checkpoints of fits, and the lock on them."""
