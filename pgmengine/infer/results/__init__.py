"""Results: plans, statuses and answers, their names, displays, and tables for ArviZ and pandas."""
