"""Hostile input: functions that take any bytes and fail only where something of ours does, and what feeds them.

    python -m tests.fuzz --seconds=60 [--target=lines]     looks for bytes with which one fails
    pytest tests/fuzz                                      all that was worth keeping, once more

`table` lists the targets. Each stands in a file of its own, whose docstring says how bytes become an input there and
what must hold whatever they are.
"""
