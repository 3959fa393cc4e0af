"""Graphs of layers: couplings, structure, parameters, evidence, and questions about them."""
