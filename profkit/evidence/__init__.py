"""Runs  ->  verdicts on a change or a claim."""
