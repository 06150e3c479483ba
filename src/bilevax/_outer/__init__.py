"""The outer loop: lam, step after step, without losing a run."""
