"""Pictures of models: boxes of layers, arrays and variables, with their marginals, and edges."""
