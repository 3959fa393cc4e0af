"""Monitors of learning, likelihoods, and the history of their values."""
