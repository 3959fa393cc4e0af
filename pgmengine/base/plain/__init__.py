"""Plain routines, in the place of the compiled ones where the package has no compiled module."""
