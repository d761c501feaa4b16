"""Queues, what goes into them, and who consumes them."""
