"""Declarations, checks and files of couplings and biases that many places share."""
