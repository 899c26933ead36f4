"""Configurations of Hugging Face's models, by `model_type`."""
