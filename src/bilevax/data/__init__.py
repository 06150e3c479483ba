"""Data sets: found, fetched, verified, read. Imports no jax."""
