"""The whole broker, simulated: fake disk, fake clock, clients of bytes only, and an oracle that knows what must hold.

One seed is one run, always the same one. `python -m tests.sim --help` tells how to run many, and how to replay one.
"""
