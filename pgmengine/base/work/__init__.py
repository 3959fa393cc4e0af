"""Work: threads, executors, memory, progress, and results that are kept."""
