"""Learning: the likelihood gradient is the difference of two inferences.

It is E[d log_density | data] - E[d log_density | given], a data phase less a model phase. The
update is `Run.update` in run.py. Each model phase has a file of its own in negative/.
"""
