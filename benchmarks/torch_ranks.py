"""What DDP makes of the problem of `torch_problem.py` on four ranks: processes of this machine, connected by gloo."""

import os
import tempfile
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from safetensors.numpy import load_file, save_file
from torch import multiprocessing, nn
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer
from torch_problem import KEPT, SHARES, SIZES, Arrays, flat, network_of

RANKS, RATE, COLUMNS, EVERY = 4, 0.1, 2, 3
LOCAL = {"local sgd": 0, "post-local sgd": 10}  # and how many updates use the mean of gradients first
CASES = ("mean over ranks", "powersgd", *LOCAL)


def cases(problem: Arrays, chosen: Collection[str] = ()) -> Iterator[tuple[str, Arrays]]:
    """The names of all cases, or of those chosen, each with what came out."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    names = [name for name in CASES if not chosen or name in chosen]
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(work, (names, problem, Path(folder)), RANKS if names else 0)
        for name in names:
            made = load_file(Path(folder) / name)
            print(f"{name}: {made['losses'][0]:.4f} to {made['losses'][-1]:.4f}")
            yield name, made


def work(rank: int, names: Sequence[str], problem: Arrays, folder: Path) -> None:
    """One rank of all trainings; the first one writes what came out."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=RANKS)
    for name in names:
        made = trained(rank, name, problem)
        if rank == 0:
            save_file(made, folder / name)
    dist.destroy_process_group()


def first_directions() -> Arrays:
    """The first Q of PowerSGD for a matrix of so many columns."""
    draw = np.random.RandomState(1)
    return {f"q{columns}": draw.normal(0, 1, (columns, COLUMNS)) for columns in SIZES[:-1]}


def compressed(state: PowerSGDState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """PyTorch's hook, whose first Q is not drawn by PyTorch."""
    if state.iter == state.start_powerSGD_iter and not state.q_memory_dict:
        matrices = [gradient for gradient in bucket.gradients() if gradient.ndim > 1]
        firsts = first_directions()
        known = [torch.from_numpy(firsts[f"q{matrix.shape[1]}"]).flatten() for matrix in matrices]
        rows = sum(len(matrix) for matrix in matrices)
        state.q_memory_dict[bucket.index()] = torch.cat(known)
        state.p_memory_dict[bucket.index()] = torch.empty(COLUMNS * rows, dtype=torch.float64)
    return powerSGD_hook(state, bucket)


def mean(values: torch.Tensor) -> Any:
    dist.all_reduce(values)
    return (values / RANKS).numpy()


def trained(rank: int, name: str, problem: Arrays) -> Arrays:
    """The means over ranks of losses and weights."""
    network = nn.parallel.DistributedDataParallel(network_of(problem["start"]))
    optimizer: torch.optim.Optimizer = torch.optim.SGD(network.parameters(), lr=RATE, momentum=0.9)
    if name == "powersgd":
        # PyTorch wants two updates with the mean first. It compresses a matrix that gets smaller by more than this.
        state = PowerSGDState(None, COLUMNS, start_powerSGD_iter=2, min_compression_rate=1)
        network.register_comm_hook(state, compressed)
    if name in LOCAL:
        first = LOCAL[name]
        own = PostLocalSGDState(None, None, start_localSGD_iter=first, post_local_gradient_allreduce=False)
        network.register_comm_hook(own, post_localSGD_hook)
        # It would average after the first update without a mean of gradients; msaccel first does after EVERY of them.
        averager = PeriodicModelAverager(period=EVERY, warmup_steps=first + EVERY - 1)
        optimizer = PostLocalSGDOptimizer(optim=optimizer, averager=averager)
    losses, weights = [], []
    for update, share in enumerate(SHARES):
        optimizer.param_groups[0]["lr"] = share * RATE
        images, labels = (torch.from_numpy(problem[key][update]).chunk(RANKS)[rank] for key in ("images", "labels"))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(network(images.double()), labels.long())
        loss.backward()
        optimizer.step()
        losses.append(mean(loss.detach().clone()))
        if update + 1 in KEPT:
            weights.append(mean(torch.from_numpy(flat(network))))
    made = {"rates": np.multiply(SHARES, RATE), "losses": np.array(losses), "weights": np.stack(weights)}
    return {**made, **first_directions()} if name == "powersgd" else made
