"""Mean field and its lower bounds."""
