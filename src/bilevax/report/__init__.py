"""Records to tables, figures and a page. Imports no jax."""
