"""Tools that every room may use: errors, checks, numerics, files, threads and the cache."""
