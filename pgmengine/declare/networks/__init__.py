"""Networks of named variables, networkx graphs, and the models of other libraries."""
