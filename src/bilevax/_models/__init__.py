"""Models that the paper's experiments and the apps share."""
