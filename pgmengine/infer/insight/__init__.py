"""Insight: impacts of observations, the best next one, and divergences of models."""
