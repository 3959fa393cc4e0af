"""Names of units, of variables and of their states."""
