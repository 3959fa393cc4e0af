"""One file for each group of rows; each has rows(settings), which yields a Row after the other."""
