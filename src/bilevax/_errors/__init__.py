"""What bilevax says about bad input and bad luck, and where it says it."""
