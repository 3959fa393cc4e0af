"""Evidence: names of states, soft evidence, interventions, patterns, and targets of questions."""
