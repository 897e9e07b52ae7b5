"""Runs  ->  what changed from one to the next, and whether it is real."""
