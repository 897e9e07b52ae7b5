"""Verbs that answer programs instead of people."""
