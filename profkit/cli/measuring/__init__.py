"""Verbs that build, check, time, profile and search variants."""
