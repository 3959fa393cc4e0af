"""Exact enumeration: choose a cover, reduce the target to a log-linear problem over it, walk its states, reassemble."""
