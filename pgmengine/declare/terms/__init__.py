"""Terms as they are declared by names of units, and as files store them."""
