"""Most probable states of graphs of any width: by proof, or by search with a bound."""
