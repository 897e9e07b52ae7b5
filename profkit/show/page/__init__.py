"""Judged launches  ->  one HTML file that needs nothing else."""
