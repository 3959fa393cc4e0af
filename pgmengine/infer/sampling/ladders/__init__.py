"""Ladders of temperatures: replicas that swap, chains that wander, and log Z from both."""
