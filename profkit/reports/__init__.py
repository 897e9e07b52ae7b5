""".ncu-rep files  ->  frames."""
