"""What bilevax says about bad input and bad luck: every sentence of the core stands here."""
