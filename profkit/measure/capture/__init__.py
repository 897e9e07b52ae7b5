"""A running program's kernel launch  ->  a problem and a variant in a folder of the user's own."""
