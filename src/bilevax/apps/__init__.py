"""Tools that are used as they are, with scikit-learn's conventions."""
