"""Questions: infer and explain, the choice of methods, prepared questions, and parts of rows."""
