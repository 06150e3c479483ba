"""The paper's experiments: each a `Config` with presets, and a `run` that writes records."""
