"""Calibration: scalars of a device under a stack, fitted on measured runs.

Runs become rows by (device, stack); a row's price is taken apart into what each scalar scales; a
regularised fit in logarithms finds the scalars; runs held out say whether they help.
"""
