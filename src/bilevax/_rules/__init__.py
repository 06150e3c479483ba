"""Derivative rules for the inner loop, one file each."""
