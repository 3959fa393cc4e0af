"""Terms: parameters with their places, and their expansion to whole layers."""
