"""Which of my training documents hurt? A small GPT, and the metagradient of its whole training."""
