"""Exact answers on planar graphs of two-state units, by the determinant of Kac and Ward."""
