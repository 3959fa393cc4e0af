"""The pictures of `pgmengine.plots`: graphs, images, curves and chains in one style."""
