"""Statistics, comparison, claims."""
