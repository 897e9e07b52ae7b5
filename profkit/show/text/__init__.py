"""Values, names and text of any origin  ->  what is safe and pleasant to read."""
