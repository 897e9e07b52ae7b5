"""A language that kernels are written in  ->  how its files are read, compiled and launched.

One file of this folder is one language; registry.py finds them. Nothing here runs a kernel's code in
the process of a verb: headers are read as text, and what has to be run to compile runs in ahead/.
"""
