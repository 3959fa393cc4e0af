"""Declarations: the builder, families, networkx graphs, models of other libraries, and checks."""
