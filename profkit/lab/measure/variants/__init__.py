"""A folder of kernels and its problem.py  ->  variants, cases, tunables."""
