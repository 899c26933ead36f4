"""Data files: devices, software stacks, model shapes. Numbers carry their unit and source."""
