"""What can be asked about the broker: `_eval` and `stats`. It only reads."""
