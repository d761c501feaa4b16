"""Tools that decide the promises of docs/GUARANTEES.md from outside: real processes, files and sockets.

They are written from docs alone (GUARANTEES, PROTOCOL, JOURNAL, OPERATIONS), and import nothing of the broker.
So a mistake in its code is not repeated in its test. `make verify` runs them all; `python -m verification --help` shows
how to run one.
"""
