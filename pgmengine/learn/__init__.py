"""Learning: the likelihood gradient is the difference of two inferences.

It is E[d log_density | data] - E[d log_density | given], a data phase less a model phase. The
update stands in run.py (`Run.update`), the algorithm of each model phase in a file of negative/.
"""
