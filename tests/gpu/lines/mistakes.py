"""Programs that use libraries, with one mistake each; a comment at a line's end names it.

    python -m tests.gpu.lines.mistakes NAME              # one program, 30 steps
    python -m tests.gpu.lines.mistakes --judge FOLDER    # all of them, under profkit triage

--judge prints what the first finding of each names: the line of the mistake, or its function.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__)
STEPS = 30
Step = Callable[[], Any]


def transformers_attention() -> Step:
    """Attention written out, where a fused one is there."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=6, n_positions=2048, attn_implementation="eager")
    model = GPT2LMHeadModel(config).cuda().to(torch.bfloat16)
    words = torch.randint(0, 50257, (4, 2048), device="cuda")

    def step() -> Any:
        return model(words, use_cache=False).logits.sum()  # mistake transformers_attention

    return torch.no_grad()(step)


def transformers_no_cache() -> Step:
    """Each new word's keys are computed anew."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_layer=4)).cuda().to(torch.bfloat16).eval()
    words = torch.randint(0, 50257, (2, 32), device="cuda")

    def step() -> Any:
        return model.generate(  # mistake transformers_no_cache
            words, max_new_tokens=12, use_cache=False, do_sample=False, pad_token_id=0
        )

    return step


def lightning_item() -> Step:
    """The loss is read after each part of a batch, in a module of Lightning."""
    import pytorch_lightning as lightning
    import torch

    class Net(lightning.LightningModule):
        """A stack of layers."""

        def __init__(self) -> None:
            super().__init__()
            layers = [torch.nn.Linear(2048, 2048, bias=False) for _ in range(8)]
            self.body = torch.nn.Sequential(*layers)

        def training_step(self, batch: Any, number: int) -> Any:
            """One part."""
            loss = self.body(batch).square().mean()
            if loss.item() > 1e9:  # mistake lightning_item
                raise ValueError(number)
            return loss

    net = Net().cuda()
    given = torch.randn(1024, 2048, device="cuda")

    def step() -> Any:
        for number in range(8):
            net.training_step(given, number).backward()
        net.zero_grad()

    return step


def torchvision_layout() -> Step:
    """A convolution network in float32 without tensor cores."""
    import torch
    import torchvision

    torch.backends.cudnn.allow_tf32 = False
    model = torchvision.models.resnet18().cuda()
    images = torch.randn(64, 3, 224, 224, device="cuda")
    labels = torch.randint(0, 1000, (64,), device="cuda")
    opt = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=True)

    def step() -> Any:
        opt.zero_grad()
        out = model(images)  # mistake torchvision_layout
        torch.nn.functional.cross_entropy(out, labels).backward()
        opt.step()

    return step


def torchvision_copy() -> Step:
    """Images wait for a copy from memory that is not pinned."""
    import torch
    import torchvision

    model = torchvision.models.resnet18().cuda().to(torch.bfloat16)
    images = torch.randn(128, 3, 224, 224).to(torch.bfloat16)

    def step() -> Any:
        given = images.to("cuda")  # mistake torchvision_copy
        return model(given).sum()

    return torch.no_grad()(step)


def torchmetrics_compute() -> Step:
    """A metric is read in the middle of each step."""
    import torch
    from torchmetrics.classification import MulticlassAccuracy

    model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(8)]).cuda()
    metric = MulticlassAccuracy(num_classes=2048, validate_args=False).cuda()
    given = torch.randn(512, 2048, device="cuda")
    labels = torch.randint(0, 2048, (512,), device="cuda")

    def step() -> Any:
        for _ in range(8):
            out = model(given)
            metric.update(out, labels)
            if metric.compute().item() > 2:  # mistake torchmetrics_compute
                raise ValueError("more than all")
            out.square().mean().backward()

    return step


def geometric_loop() -> Step:
    """Graphs go through the network one by one."""
    import torch
    from torch_geometric.nn import GCNConv

    conv = GCNConv(32, 32).cuda()
    graphs = []
    for _ in range(64):
        graphs.append((torch.randn(50, 32).cuda(), torch.randint(0, 50, (2, 200)).cuda()))

    def step() -> Any:
        total = 0
        for nodes, edges in graphs:
            total = total + conv(nodes, edges).sum()  # mistake geometric_loop
        return total

    return torch.no_grad()(step)


def accelerate_optimizer() -> Step:
    """An optimizer that updates each parameter by kernels of its own."""
    import torch
    from accelerate import Accelerator

    accelerator = Accelerator()
    layers = [torch.nn.Linear(256, 256) for _ in range(60)]
    model = torch.nn.Sequential(*layers)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
    model, opt = accelerator.prepare(model, opt)
    given = torch.randn(64, 256, device=accelerator.device)

    def step() -> Any:
        opt.zero_grad()
        accelerator.backward(model(given).square().mean())
        opt.step()  # mistake accelerate_optimizer

    return step


def ode_small_steps() -> Step:
    """A small network, called hundreds of times one after another."""
    import torch
    from torchdiffeq import odeint

    net = torch.nn.Sequential(
        torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 8)
    ).cuda()
    begin = torch.randn(64, 8, device="cuda")
    times = torch.linspace(0, 1, 50).cuda()

    def step() -> Any:
        return odeint(lambda t, y: net(y), begin, times, method="rk4")  # mistake ode_small_steps

    return torch.no_grad()(step)


def jax_op_by_op() -> Step:
    """Operations of JAX outside of jit."""
    import jax
    import jax.numpy as jnp

    given = jax.random.normal(jax.random.PRNGKey(0), (4096, 4096))

    def step() -> Any:
        x = given
        for _ in range(20):
            x = jnp.sin(x) * 0.5 + x  # mistake jax_op_by_op
        return x.block_until_ready()

    return step


def cupy_get() -> Step:
    """A value of CuPy is read after each small piece of work."""
    import cupy

    given = cupy.random.rand(1024, 1024, dtype=cupy.float32)

    def step() -> Any:
        x = given
        for _ in range(30):
            x = x @ given
            x /= float(cupy.abs(x).max())  # mistake cupy_get
        return x

    return step


def audio_on_host() -> Step:
    """A table is made on the host and copied in each step."""
    import torch
    import torchaudio

    waves = torch.randn(32, 16000, device="cuda")

    def step() -> Any:
        spectrum = torchaudio.transforms.MelSpectrogram(16000).cuda()  # mistake audio_on_host
        return spectrum(waves).log1p().mean()

    return torch.no_grad()(step)


PROGRAMS: dict[str, Callable[[], Step]] = {
    function.__name__: function
    for function in (
        *(transformers_attention, transformers_no_cache, torchvision_layout, torchvision_copy),
        *(torchmetrics_compute, geometric_loop, accelerate_optimizer, ode_small_steps),
        *(jax_op_by_op, cupy_get, audio_on_host, lightning_item),
    )
}


def run_program(name: str) -> None:
    """Run one; products may use tensor cores, so that this is no second mistake."""
    if not name.startswith(("jax", "cupy", "torchvision_layout")):
        import torch

        torch.set_float32_matmul_precision("high")
    step = PROGRAMS[name]()
    for _ in range(STEPS):
        step()


def find_mistakes() -> dict[str, int]:
    """Return the line of each mistake."""
    lines = {}
    for number, text in enumerate(HERE.read_text("utf-8").split("\n"), 1):
        if found := re.search(r"  # mistake (\w+)$", text):
            lines[found[1]] = number
    return lines


def triage_program(name: str, folder: Path) -> str:
    """Record one, and say what the first finding names."""
    place = folder / name
    command = [sys.executable, "-m", "profkit", "triage", "-o", str(place), "--budget", "0"]
    command += ["--json", "--quiet", "--", sys.executable, str(HERE), name]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        return f"{name}: ended with {done.returncode}: {done.stderr[-300:]}"
    (folder / f"{name}.json").write_text(done.stdout, encoding="utf-8")
    findings = json.loads(done.stdout).get("findings", [])
    first = json.dumps(findings[0])[:600] if findings else "no finding"
    wanted = f"mistakes.py:{find_mistakes()[name]}"
    if not findings:
        return f"{name}: none"
    named = wanted in json.dumps(findings[0])
    anywhere = wanted in json.dumps(findings)
    return f"{name}: {'named' if named else 'later' if anywhere else 'NOT named'}: {first}"


def main(arguments: list[str]) -> None:
    """Run one, or judge all."""
    if arguments[0] != "--judge":
        run_program(arguments[0])
        return
    folder = Path(arguments[1])
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(4) as pool:
        for said in pool.map(lambda name: triage_program(name, folder), PROGRAMS):
            print(said, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
