"""A Triton whose compiler knows one kernel: it doubles halves, on the stand-in driver."""

import inspect
from collections import namedtuple
from types import SimpleNamespace

from triton.runtime import driver

FAILS = None


def cdiv(a, b):
    return -(-a // b)


class JITFunction:
    def __init__(self, fn):
        self.fn, self.arg_names = fn, list(inspect.signature(fn).parameters)
        self.kernels = {}

    def __getitem__(self, grid):
        def run(*args, num_warps=4, **options):
            active = driver.active
            assert active.get_current_target().arch == 90
            key = tuple(x if isinstance(x, int) else x.dtype for x in args), num_warps
            if key not in self.kernels:
                self.kernels[key] = self.compile(active, args, num_warps)
            launcher = self.kernels[key]
            launcher(*(*grid, 1, 1)[:3], 0, 1, None, None, None, None, *args)

        return run

    def compile(self, active, args, num_warps):
        types = [
            "constexpr" if n[0].isupper() else "i32" if isinstance(a, int) else "*fp16"
            for n, a in zip(self.arg_names, args, strict=True)
        ]
        Metadata = namedtuple(
            "Metadata", "name shared num_warps num_ctas global_scratch_size profile_scratch_size"
        )
        metadata = Metadata("attention_scalar", 2048, num_warps, 1, 0, 0)
        constants = {(i,): args[i] for i, t in enumerate(types) if t == "constexpr"}
        signature = dict(zip(self.arg_names, types, strict=True))
        source = SimpleNamespace(fn=self, signature=signature, constants=constants, attrs={})
        launcher = active.launcher_cls(source, metadata)
        print("ptxas info    : Compiling entry function 'attention_scalar' for 'sm_90a'")
        print("ptxas info    : Used 24 registers, used 1 barriers")
        active.utils.load_binary("attention_scalar", b"\x7fELF\x02\x01 no machine code", 2048, 0)
        return launcher


def jit(fn):
    return JITFunction(fn)
