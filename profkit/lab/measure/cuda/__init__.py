"""The CUDA driver and its binaries, through ctypes  ->  memory, streams, graphs, libraries, clocks."""
