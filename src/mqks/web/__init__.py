"""What a browser, Prometheus and curl see of the broker: HTTP, in the broker's own process and event loop.

It reads the broker's objects, once a second or when asked, never per message; what changes something goes through the
broker's own protocol (inside.py) or its purge. Importing this package loads nothing else: only a broker with HTTP does.
"""
