"""Gates: conditionals with causal independence, such as noisy-or, as chains of small tables."""
