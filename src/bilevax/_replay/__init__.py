"""Hypergradients of runs that are longer than memory: segments replayed from a tape."""
