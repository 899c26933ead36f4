"""The whole story in a minute: plan, store, compare, run and measure."""
