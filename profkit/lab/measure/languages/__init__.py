"""A language that kernels are written in  ->  how its files are read, compiled and launched.

A file of this folder with a `LANGUAGE` is one; language.py finds them. Nothing here runs a kernel's
code in the process of a verb: headers are read as text, and what has to be run to compile runs in
aot.py.
"""
