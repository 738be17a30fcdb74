"""The vendor's networks: F_s, D and G learn the source classes and what is none of them (method ``usfda``).

Four losses take turns, one per iteration, each with an Adam optimiser of its own (docs/usfda.md):

    L_CE (F_s, D)  −log ŷ_s − α·log ŷ_n        one softmax over K = |C_s| + |C_n|
    L_v  (F_s, G)  |v_s − G(F_s(v_s))|          positives
    L_u  (F_s, G)  |u_r − F_s(G(u_r))|          u_r ~ N(μ_c, Σ_c), c uniform
    L_p  (F_s)     −log softmax_c(log N(u_s | μ_c, Σ_c) / T) at the true class, T = dim u

Until the first priors, at ``update_every``, only L_CE and L_v run. Training goes on in rounds, from one update of the
priors to the next, until a round raises the accuracy on held-out source samples no more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from ...config import Config
from ...data.samples import Matrix
from ..settings import ProcurementSettings, TrainingSet
from ..vendor import SourceNetworks, members_of
from .latent import latent_negatives
from .networks import D, arrays, balanced_batches, batches, in_pieces, learnable, make_f, make_g, torch_device
from .priors import ClassPriors

ROUNDS = 3  # at least: one before the first priors, two with all losses
RISE = 0.005  # of held-out accuracy in a round, half a point, for which another round is worth its time
PRIORS = 131_072  # samples that the class priors are fitted to, at most: their u take 134 MB


@dataclass(frozen=True)
class Trained:
    """F_s, D and G, the losses on the way, and the accuracy on held-out samples at the end of each round."""

    f: nn.Module
    d: nn.Module
    g: nn.Module
    history: dict[str, list[float]]
    accuracy: list[float]  # in [0, 1]; empty where the number of iterations was given

    @property
    def networks(self) -> SourceNetworks:
        """What is handed over: F_s and D."""
        return SourceNetworks(arrays(self.f), arrays(self.d))

    @property
    def iterations(self) -> int:
        """Turns of all losses together."""
        return sum(map(len, self.history.values()))

    @property
    def parameters(self) -> int:
        """Learnable parameters of F_s, D and G."""
        return learnable(self.f, self.d, self.g)


def some_of_each(index: np.ndarray, y: np.ndarray, most: int) -> np.ndarray:
    """About ``most`` of the samples ``index``, evenly spaced in every class, two of each at least; all if no more."""
    if len(index) <= most:
        return index
    parts = members_of(y[index])
    each = max(2, most // len(parts))
    chosen = [mine[np.linspace(0, len(mine) - 1, min(each, len(mine))).astype(int)] for mine in parts]
    some: np.ndarray = index[np.sort(np.concatenate(chosen))]
    return some


def l_p(u: Tensor, y: Tensor, priors: ClassPriors) -> Tensor:
    """Cross-entropy over log-densities; T = dim u keeps it finite: a log-density grows with the dimension."""
    return functional.cross_entropy(priors.log_density(u) / u.shape[1], y)


def another_round(accuracy: Sequence[float], iterations: int, most: int) -> bool:
    """Whether to go on, from the held-out accuracy after each round and the iterations that these took.

    Three rounds at least; then as long as the last one rose above all before it by ``RISE``, up to ``most`` iterations.
    """
    if len(accuracy) < ROUNDS:
        return True
    return iterations < most and accuracy[-1] >= max(accuracy[:-1]) + RISE


def train_source(
    data: TrainingSet, settings: ProcurementSettings, seed: int, config: Config, text: str = "networks"
) -> Trained:
    """Train F_s, D and G; ``text`` stands beside the progress bar."""
    with torch_device(config) as device:
        return _train(data, settings, seed, config, device, text)


def _train(
    data: TrainingSet, settings: ProcurementSettings, seed: int, config: Config, device: torch.device, text: str
) -> Trained:
    X, train, X_n, y_n, classes = data.X, data.train, data.X_n, data.y_n, data.classes
    settings = settings.scaled(classes)
    rng = np.random.default_rng(seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        f, g, d = make_f(X.shape[1]), make_g(X.shape[1]), D(classes, data.negative_classes)
    f, g, d = f.to(device), g.to(device), d.to(device)
    generator = torch.Generator().manual_seed(seed)
    optimisers = {
        name: torch.optim.Adam([p for m in modules for p in m.parameters()], lr=settings.lr, fused=True)
        for name, modules in {"L_CE": (f, d), "L_v": (f, g), "L_u": (f, g), "L_p": (f,)}.items()
    }
    if settings.balanced:
        next_positive = balanced_batches(train, data.y, min(settings.batch, len(train)), rng)
    else:
        next_positive = batches(train, settings.batch, rng)
    next_negative = batches(np.arange(0 if y_n is None else len(y_n)), settings.negative_batch, rng)
    some = some_of_each(train, data.y, PRIORS)
    y_all = torch.from_numpy(data.y.astype(np.int64)).to(device)
    priors: ClassPriors | None = None
    latent: Callable[[], tuple[Tensor, Tensor]] | None = None
    history: dict[str, list[float]] = {name: [] for name in optimisers}

    def vectors(index: np.ndarray, source: Matrix = X) -> Tensor:
        return torch.from_numpy(source[index]).to(device)

    def l_ce(index: np.ndarray) -> Tensor:
        y_s = y_all[index]
        if X_n is not None and y_n is not None:
            chosen = next_negative()
            u = f(torch.cat([vectors(index), vectors(chosen, X_n)]))
            u_s, u_n, c_n = u[: len(index)], u[len(index) :], torch.from_numpy(y_n[chosen]).to(device)
        else:
            u_s = f(vectors(index))
            u_n, c_n = latent() if latent else (u_s[:0], y_s[:0])
        loss = functional.cross_entropy(d(u_s), y_s)
        if len(u_n) == 0:
            return loss
        return loss + settings.alpha * functional.cross_entropy(d(u_n), classes + c_n)

    def step(iteration: int) -> None:
        nonlocal priors, latent
        if iteration and iteration % settings.update_every == 0:
            u = in_pieces(f.train(settings.training_priors), vectors, some)
            priors = ClassPriors(u, y_all[some], classes)
            if data.kind != "composite":
                latent = latent_negatives(
                    data.kind, priors, u, y_all[some], settings.negative_batch, settings.max_negative_classes,
                    generator,
                )  # fmt: skip
        turns = ("L_CE", "L_v", "L_u", "L_p") if priors else ("L_CE", "L_v")
        name = turns[iteration % len(turns)]
        index = next_positive()
        f.train()
        if name == "L_CE":
            loss = l_ce(index)
        elif name == "L_v":
            v = vectors(index)
            loss = (v - g(f(v))).abs().mean()
        elif name == "L_u":
            assert priors is not None
            c = torch.randint(classes, (len(index),), generator=generator).to(device)
            u_r = priors.sample(c, generator)
            loss = (u_r - f(g(u_r))).abs().mean()
        else:
            assert priors is not None
            loss = l_p(f(vectors(index)), y_all[index], priors)
        optimisers[name].zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimisers[name].step()
        history[name].append(loss.item())
        if not np.isfinite(history[name][-1]):
            raise RuntimeError(f"procurement diverged: {name} is not finite at iteration {iteration}")

    def measured() -> float:
        """Accuracy on the held-out samples, or on those to learn from where none is held out."""
        best = in_pieces(lambda v: d(f(v)).argmax(1), vectors, held_out)
        return float((best == y_all[held_out]).float().mean())

    held_out = np.setdiff1d(np.arange(len(X)), train)
    held_out = held_out if len(held_out) else train
    most = settings.max_epochs * len(train) // min(settings.batch, len(train))
    accuracy: list[float] = []
    done, size = 0, settings.iterations or settings.update_every
    while done == 0 or (settings.iterations == 0 and another_round(accuracy, done, most)):
        so_far = f", round {len(accuracy) + 1}" if settings.iterations == 0 else ""
        so_far += f", source accuracy {accuracy[-1]:.0%}" if accuracy else ""
        with config.progress(size, text + so_far, "iterations") as advance:
            for iteration in range(done, done + size):
                step(iteration)
                advance(1)
        done += size
        if settings.iterations == 0:
            f.eval()
            accuracy.append(measured())
    return Trained(f.cpu().eval(), d.cpu().eval(), g.cpu().eval(), history, accuracy)
