"""The bilevel problems of section 4, for the paper's experiments and for the apps."""
