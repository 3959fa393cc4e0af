"""Applications: the command line, the demo and the generative classifier."""
