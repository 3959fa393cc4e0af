"""Models as layers of programs in torch and JAX: densities in their arrays, and gradients."""
