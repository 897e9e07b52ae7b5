"""Callables on a GPU  ->  timing samples."""
