"""The lowest room of the package: errors, files, tables, signals, and the hash of the sources.

It imports no other room. It knows of schedules only the keys that tell their files apart, so that a file of
another kind is refused.
"""
