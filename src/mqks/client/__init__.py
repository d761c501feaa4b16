"""For services: a client that connects by itself, comes back by itself, and loses or repeats nothing silently.

What users need stands in `mqks` itself. Nothing is imported here, so that a command which needs no client has none.
"""
