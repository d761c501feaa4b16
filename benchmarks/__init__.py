"""The benchmark suite behind `make bench`: MQKS beside its peers on the same machine, in the same minutes.

`contenders/` knows how each server is started and spoken to, `clients/` how each Python client is used, `load.py` moves
bytes, `journals.py` writes what Spark reads, `measure*.py` turn a load into numbers, `scenarios.py` and `goals.py` are
tables, `report.py` and `plots.py` show what came out.
Linux only: CPU and memory are read from /proc.
"""
