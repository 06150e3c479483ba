"""Models of section 4 that the paper's experiments and the apps share."""
