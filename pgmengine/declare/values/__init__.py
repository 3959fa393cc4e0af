"""Values of tables in other forms than arrays: functions, sparse rows, and noisy gates."""
