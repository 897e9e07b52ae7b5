""".cu files  ->  runs, on a machine with a GPU."""
