"""Frames  ->  findings."""
