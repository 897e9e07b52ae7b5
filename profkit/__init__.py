"""profkit: what is this CUDA kernel waiting for, how do you know, and did my change fix it?"""
