"""The start of learning: base rates, and weights that are pretrained pair by pair of layers."""
