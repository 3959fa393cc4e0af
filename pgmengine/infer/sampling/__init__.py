"""Answers by sampling: chains, ladders of temperatures, annealing, ancestral draws."""
