"""Requests  ->  processes that hold a GPU and may hang or crash."""
