"""Python clients as their users would write them: one small file per library, each loop in the library's own best way.

A library is imported only in the process that uses it, so a missing one costs no more than its own column.
"""
