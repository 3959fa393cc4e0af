"""Updates of a fit in compiled code: a list of operations that is prepared once."""
