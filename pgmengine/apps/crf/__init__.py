"""Linear-chain conditional random fields: sequences, the objective, its minimum, the estimator."""
