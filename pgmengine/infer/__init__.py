"""Answers: infer and explain, the choice of methods, results, and the methods by family."""
