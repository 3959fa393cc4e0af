"""Models in files and back."""
