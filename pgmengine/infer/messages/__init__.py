"""Messages on factor graphs: belief propagation."""
