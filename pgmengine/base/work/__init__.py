"""Work: threads, executors, free memory, progress bars and caches."""
