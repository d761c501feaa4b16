"""MQKS, Message Queue Kept Simple: a broker you can talk to with nc.

Importing this costs next to nothing: its parts are imported by those who use them.
"""

from importlib.metadata import version

__version__ = version("mqks")
