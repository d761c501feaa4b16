"""The broker without I/O: actions and policy in Python over the compiled core.

Of our own packages it imports mqks.core and mqks.journal. Its parts are listed in docs/ARCHITECTURE.md.
"""

from mqks.broker.broker import Broker

__all__ = ["Broker"]
