"""The broker without I/O: actions and policy in Python over the compiled core.

It may import mqks.core and nothing else of ours.
"""

from mqks.broker.broker import Broker

__all__ = ["Broker"]
