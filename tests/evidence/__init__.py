"""Statistics, comparison, claims, ledger."""
