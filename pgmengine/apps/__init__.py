"""Applications: the command line, the demo, the generative classifier."""
