"""Anything  ->  text and pictures."""
