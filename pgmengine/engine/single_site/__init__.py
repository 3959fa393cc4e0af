"""Sweeps that move one unit at a time, with chains as the lanes of vectors."""
