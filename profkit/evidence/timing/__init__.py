"""Timing samples  ->  medians, intervals, and faster, slower, same or cannot tell."""
