"""Pools: executors whose tasks have processes of their own, here or on Dask workers."""
