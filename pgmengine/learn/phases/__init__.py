"""The data phase, the batch of the model phase, and the statistics of both."""
