"""Models that declare how they shard: the reference decoder and the Hugging Face Llama."""
