"""A launch function in Python  ->  a library that starts its kernels without Python.

profkit.measure.workers.ahead runs the function once per case of the problem, with arrays that are
addresses and no more; what it starts is written down (plan.py), and player.c starts the same again.
"""
