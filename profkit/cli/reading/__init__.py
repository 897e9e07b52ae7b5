"""Verbs that read reports of anything."""
