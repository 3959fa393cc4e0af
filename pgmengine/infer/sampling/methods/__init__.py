"""Methods that sample: a dataclass for each."""
