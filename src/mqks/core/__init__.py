"""The compiled core: see hub.pyx for its layers and tail.pyx for where messages live. It imports nothing of ours."""
