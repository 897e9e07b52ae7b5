"""What runs inside the program that is captured: the standard library, numpy, torch and Triton alone.

The program's Python need not have profkit: this folder is put on its path, and Python imports
sitecustomize at its start.
"""
