"""What every room may use: errors, numerics, argument checks, progress, threads, files, the one
cache.
"""
