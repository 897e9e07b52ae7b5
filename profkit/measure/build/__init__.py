"""Variants  ->  shared libraries, their resources, and what their launchers would start."""
