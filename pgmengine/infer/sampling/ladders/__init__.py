"""Ladders of temperatures: replicas that swap places, chains that change rungs, and log Z."""
