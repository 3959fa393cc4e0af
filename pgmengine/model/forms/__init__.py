"""Forms: tables whose entries follow from fewer numbers, such as those of noisy gates."""
