"""A small text to train on: the opening of Shakespeare's Coriolanus and what follows it.

The plays are in the public domain. `shakespeare.txt` is plain ASCII; `executor.data` reads it as
bytes.
"""
