"""Requests as text: words, names, JSON, and where the two dialects meet. It touches nothing of the broker."""
