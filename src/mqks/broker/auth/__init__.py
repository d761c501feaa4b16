"""Who may do what, and how a client says who it is."""
