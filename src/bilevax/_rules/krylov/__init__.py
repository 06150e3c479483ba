"""All terms at the price of a few: frozen Jacobians, Krylov spaces."""
