"""Verbs that say whether it helped, and whether it is true."""
