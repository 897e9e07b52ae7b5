"""A built variant on a GPU  ->  is it right, and how fast."""
