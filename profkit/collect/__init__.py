"""A command  ->  what it does on the GPU: programs are started, ncu and our recorder around them."""
