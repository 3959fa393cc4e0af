"""Models, evidence and data as the command line reads them, from files and from its words."""
