"""Models, evidence, data and settings, read from files and from words of the command line."""
