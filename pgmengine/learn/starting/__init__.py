"""The start of learning: base rates, and weights pretrained pair by pair."""
