"""Proof on the real thing: a real `mqksd` on a real folder, killed, stopped and started again by real signals.

`ledger.py` keeps the books and knows no sockets, `publishers.py` and `consumers.py` put load on the broker,
`harness.py` kills it. Restarts that need no load are in `test_restart.py`.
"""
