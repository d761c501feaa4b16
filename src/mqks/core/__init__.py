"""The compiled core: see hub.pyx for the hot path and tail.pyx for where messages live. It imports nothing of ours."""
