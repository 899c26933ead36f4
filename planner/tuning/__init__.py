"""Tuning: which plan to try next on the user's own machines, given what came of earlier ones.

Pure: whoever runs a plan adds a trial to the document, and asks again.
"""
