"""Machine code of a kernel (SASS)  ->  for each instruction that waits, what it waits for."""
