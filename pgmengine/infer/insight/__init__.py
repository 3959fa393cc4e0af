"""Insight: the impact of each observation on an answer, and the best next observation."""
