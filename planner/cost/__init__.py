"""What the hardware makes of a workload: seconds and bytes, by named parts."""
