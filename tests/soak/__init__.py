"""Proof over time: a real `mqksd` under hundreds of connections that use every action, while things go wrong.

    python -m tests.soak --minutes=30 [--seed=N] [--connections=300] [--report=build/soak]

The seed decides what clients do and which faults come in which order; what the broker is doing at that moment is up
to the machine, so a seed repeats a run only nearly.

- `run.py` is the run from start to verdict: a storm of faults, then calm under the same load, then all is drained;
- `faults.py` is the table of what goes wrong, `process.py` the broker's process, its disk and its clock;
- `link.py` is a connection that comes back in every life of the broker. Who speaks over it: `counted.py` publishes and
  consumes what is counted, `crowd.py` does anything, `nuisances.py` misbehaves, `web.py` asks over HTTP,
  `watching.py` looks on: the figures, and the history as it grows;
- `verdict.py` holds the rules for memory, open files and counters, and knows no I/O; what was lost, doubled or out of
  order is judged by the ledger of `tests/crash`; `report.py` writes down what came out.
"""
