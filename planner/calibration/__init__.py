"""Calibration: what measured runs teach of steps that are predicted.

Runs become rows with their measured steps; what they teach is the posterior of the model that
intervals are of (`planner.cost.learnt`). A machine's own profile is fitted to its steps here too.
"""
