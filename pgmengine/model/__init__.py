"""Models: layers, couplings, tables, structure and parameters, and their log density."""
