"""Methods that sample, one dataclass each."""
