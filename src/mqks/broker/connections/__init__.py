"""The clients of the broker: who is connected, how fast each may be, what each did wrong."""
