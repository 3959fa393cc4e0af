"""Applications: the command line, the demo, the generative classifier and layouts of graphs."""
