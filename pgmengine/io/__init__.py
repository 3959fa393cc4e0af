"""Reading and writing models in files."""
