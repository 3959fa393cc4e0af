"""Couplings and biases that many places share: what they are, and how they act."""
