"""What runs inside of the program that is captured or recorded.

It imports the standard library, numpy, torch and Triton alone: the program's Python need not have
profkit. This folder is put on its path, and Python imports sitecustomize at its start.
"""
