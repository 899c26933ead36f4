"""What a model needs, whatever the hardware: parameters, FLOPs, activation bytes."""
