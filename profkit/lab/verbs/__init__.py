"""The verbs that make runs: a file each, found by profkit/cli/app.py as its own are."""
