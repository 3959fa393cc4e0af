"""Pictures of models as SVG: the places of nodes and edges, the parts of the picture, its text."""
