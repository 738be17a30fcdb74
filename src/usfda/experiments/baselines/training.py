"""What the baselines that train a network have in common: F and a head, one optimiser, one budget, the usual losses.

F is the bottleneck that their public implementations put on the backbone: linear to 256, BatchNorm, ReLU (a baseline
that has another says so). The F of the paper is larger, and most do worse with it (docs/baselines.md). The budget
(``TrainingSettings``) is the same for all: so many batches of source samples, and as many of target samples; SGD with
Nesterov momentum 0.9, weight decay 5e-4, rate η·(1 + 10p)^(−0.75), where p goes from 0 to 1. Source and target
pass F in one batch, so that BatchNorm sees in training what it sees later (but for IWAN, which has an F for each).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm

from ...methods.usfda.networks import batches, in_pieces, learnable, torch_device
from ...methods.vendor import LATENT
from .api import Baseline, Decision, Features, Matrix

SURE = 0.5  # a softmax below it is unknown, for baselines that have no rule of their own


@dataclass(frozen=True)
class TrainingSettings:
    """The budget, the same for all: chosen with a look at labels, in favour of the baselines (docs/baselines.md)."""

    steps: int = 500  # of SGD in each stage; with twice as many, several baselines lose up to 16 points of H
    batch: int = 36  # samples of each side per step, as in UAN's public code
    rate: float = 1e-2  # η, as in most of their public implementations


@dataclass(frozen=True)
class SourceFreeSettings(TrainingSettings):
    """The budget of baselines that adapt without the source."""

    target_rate: float = 1e-2  # η while F adapts
    rounds: int = 15  # in which what is derived from the whole target is renewed, as SHOT publishes it


class Network(nn.Module):
    """F, a linear layer and what follows it, and a linear head."""

    def __init__(self, d: int, outputs: int, *layers: nn.Module):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(d, LATENT), *layers)
        self.head = nn.Linear(LATENT, outputs)

    def forward(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """u and the logits."""
        u = self.f(v)
        return u, self.head(u)


def network(d: int, outputs: int) -> Network:
    """With the usual bottleneck."""
    return Network(d, outputs, nn.BatchNorm1d(LATENT), nn.ReLU())


def discriminator() -> nn.Sequential:
    """u → logit of "from the source"."""
    return nn.Sequential(
        nn.Linear(LATENT, 1024), nn.ReLU(), nn.Dropout(0.5),
        nn.Linear(1024, 1024), nn.ReLU(), nn.Dropout(0.5),
        nn.Linear(1024, 1),
    )  # fmt: skip


class _Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, coefficient: float) -> Tensor:
        ctx.coefficient = coefficient
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return -ctx.coefficient * gradient, None


def reverse(x: Tensor, coefficient: float = 1.0) -> Tensor:
    """x itself; its gradient comes back times −coefficient."""
    reversed_: Tensor = _Reverse.apply(x, coefficient)  # type: ignore[no-untyped-call]
    return reversed_


def warm_up(p: float) -> float:
    """2 / (1 + e^(−10p)) − 1: the adversary counts for nothing at first and for one in the end."""
    return 2 / (1 + math.exp(-10 * p)) - 1


def domain_loss(source: Tensor, target: Tensor, w_s: Tensor | None = None, w_t: Tensor | None = None) -> Tensor:
    """−mean w_s·log σ(source) − mean w_t·log(1 − σ(target)) of a discriminator's logits."""
    l_s, l_t = functional.softplus(-source.squeeze(1)), functional.softplus(target.squeeze(1))
    return (l_s if w_s is None else w_s * l_s).mean() + (l_t if w_t is None else w_t * l_t).mean()


def entropy(p: Tensor) -> Tensor:
    """Of each row of probabilities."""
    return -(p * p.clamp(min=1e-30).log()).sum(1)  # its gradient is finite at 0, too


def normalised_entropy(p: Tensor) -> Tensor:
    """Entropy over its maximum, from 0 to 1."""
    return (entropy(p) / math.log(p.shape[1])).clamp(max=1)


def soft_cross_entropy(logits: Tensor, share: Tensor) -> Tensor:
    """−Σ_k share_k·log softmax_k of each row."""
    return -(share * logits.log_softmax(1)).sum(1)


class NetworkBaseline(Baseline):
    """A baseline that is a network; unknown is what has a softmax below SURE, unless it has a rule of its own."""

    rejects = f"softmax of the best class below {SURE}"
    Settings = TrainingSettings
    settings: TrainingSettings
    decay = 5e-4  # of the weights
    net: Network

    def __init__(self, *args: Any, **settings: Any):
        super().__init__(*args, **settings)
        self.trained: Sequence[nn.Module] = ()  # in ``adapt``
        self.rng = np.random.default_rng(self.seed)
        with torch_device(self.config) as device:
            self.device = device

    @property
    def parameters(self) -> int:
        return learnable(*self.trained)

    def seeded(self, make: Callable[[], Any]) -> Any:
        """What ``make`` makes with this baseline's seed, on the device."""
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            return make().to(self.device)

    def optimise(
        self,
        modules: Sequence[nn.Module],
        loss: Callable[[float], Tensor],
        rate: float | None = None,
        rounds: int = 1,
        refresh: Callable[[int], None] = lambda _: None,
        steps: int | None = None,
    ) -> None:
        """Minimises ``loss(p)``; at the beginning of each of ``rounds`` equal parts ``refresh(round)`` is called."""
        steps, rate = steps or self.settings.steps, rate or self.settings.rate
        parameters = [p for module in modules for p in module.parameters() if p.requires_grad]
        optimiser = torch.optim.SGD(parameters, rate, 0.9, weight_decay=self.decay, nesterov=True, fused=True)
        starts = [steps * r // rounds for r in range(rounds)]
        with torch_device(self.config), torch.random.fork_rng():  # for dropout
            torch.manual_seed(self.seed)
            for step in range(steps):
                if step in starts:
                    refresh(starts.index(step))
                    for module in modules:
                        module.train()
                p = step / steps
                optimiser.param_groups[0]["lr"] = rate * (1 + 10 * p) ** -0.75
                value = loss(p)
                if not torch.isfinite(value):
                    raise RuntimeError(f"diverged: the loss is not finite at step {step}")
                optimiser.zero_grad()
                value.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
        for module in modules:
            module.eval()

    def learn_classes(self, source: Features, smoothing: float = 0.0) -> None:
        """Cross-entropy on the source, as a start for what comes later."""
        vectors, y = self.vectors(source.X), self.labels(source)
        take = batches(np.arange(len(source.y)), self.settings.batch, self.rng)

        def loss(_: float) -> Tensor:
            index = take()
            return functional.cross_entropy(self.net(vectors(index))[1], y[index], label_smoothing=smoothing)

        self.optimise([self.net], loss, steps=self.steps(len(source.y)))

    def steps(self, n: int) -> int:
        """Of a stage with n samples."""
        return self.settings.steps

    def vectors(self, X: Matrix) -> Callable[[np.ndarray], Tensor]:
        return lambda index: torch.from_numpy(X[index]).to(self.device)

    def labels(self, source: Features) -> Tensor:
        return torch.from_numpy(source.y.astype(np.int64)).to(self.device)

    def pairs(self, X: Matrix, source: Features) -> Callable[[], tuple[Tensor, Tensor, Tensor]]:
        """Endless batches: v_s, y_s, v_t."""
        v_s, v_t, y = self.vectors(source.X), self.vectors(X), self.labels(source)
        take_s = batches(np.arange(len(source.y)), self.settings.batch, self.rng)
        take_t = batches(np.arange(len(X)), self.settings.batch, self.rng)

        def take() -> tuple[Tensor, Tensor, Tensor]:
            index = take_s()
            return v_s(index), y[index], v_t(take_t())

        return take

    def everything(self, X: Matrix, network: Callable[[Tensor], Tensor]) -> Tensor:
        """network(X), on the CPU, in the mode that decides."""
        self.net.eval()
        with torch_device(self.config):
            return in_pieces(network, self.vectors(X), np.arange(len(X))).cpu()

    def latent(self, X: Matrix) -> np.ndarray:
        return self.everything(X, self.net.f).numpy()

    def probability(self, X: Matrix) -> Tensor:
        return self.everything(X, lambda v: self.net(v)[1].softmax(1))

    def decide(self, X: Matrix) -> Decision:
        score, best = self.probability(X).max(1)
        return Decision(best.numpy(), (score >= SURE).numpy(), score.numpy())


class Joint(NetworkBaseline):
    """A baseline that trains on source and target batches at once, from the start."""

    source_free = False
    rounds = 1  # in which what is derived from the whole target is renewed

    def adapt(self, X: Matrix, source: Features | None) -> None:
        assert source is not None
        classes = len(source.classes)
        self.trained = list(self.seeded(lambda: nn.ModuleList(self.build(source.X.shape[1], classes))))
        take = self.pairs(X, source)
        refresh = partial(self.refresh, X)
        self.optimise(self.trained, lambda p: self.loss(*take(), p), rounds=self.rounds, refresh=refresh)

    def refresh(self, X: Matrix, r: int) -> None:
        """At the beginning of round r, with the whole target."""

    @abstractmethod
    def build(self, d: int, classes: int) -> list[nn.Module]:
        """The modules to train; ``net`` among them."""

    @abstractmethod
    def loss(self, x_s: Tensor, y_s: Tensor, x_t: Tensor, p: float) -> Tensor:
        """Of one batch, when the share p of the steps is done."""

    def both(self, x_s: Tensor, x_t: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """u_s, logits_s, u_t, logits_t."""
        u, logits = self.net(torch.cat([x_s, x_t]))
        n = len(x_s)
        return u[:n], logits[:n], u[n:], logits[n:]


class SourceFree(NetworkBaseline):
    """A baseline that hands over F and a head with normed weights, learnt with label smoothing; then F alone adapts.

    F has no ReLU: its output lies around zero, which cosines between samples need.
    """

    source_free = True
    Settings = SourceFreeSettings
    settings: SourceFreeSettings

    def learn(self, source: Features) -> None:
        def make() -> Network:
            net = Network(source.X.shape[1], len(source.classes), nn.BatchNorm1d(LATENT))
            net.head = weight_norm(net.head)
            return net

        self.net = self.seeded(make)
        self.learn_classes(source, smoothing=0.1)

    def adapt(self, X: Matrix, source: Features | None) -> None:
        self.net.head.requires_grad_(False)
        self.trained = [self.net.f]
        vectors, take = self.vectors(X), batches(np.arange(len(X)), self.settings.batch, self.rng)

        def loss(_: float) -> Tensor:
            index = take()
            return self.loss(torch.from_numpy(index), *self.net(vectors(index)))

        rate, rounds = self.settings.target_rate, self.settings.rounds
        self.optimise([self.net], loss, rate, rounds, lambda r: self.refresh(*self.bank(X), r), self.steps(len(X)))

    def bank(self, X: Matrix) -> tuple[Tensor, Tensor]:
        """u at unit length and the probabilities of all samples."""
        both = self.everything(X, lambda v: torch.cat(self.net(v), 1))
        return functional.normalize(both[:, :LATENT]), both[:, LATENT:].softmax(1)

    @abstractmethod
    def refresh(self, u: Tensor, p: Tensor, r: int) -> None:
        """At the beginning of round r, with the whole target."""

    @abstractmethod
    def loss(self, index: Tensor, u: Tensor, logits: Tensor) -> Tensor:
        """Of a batch, the samples ``index`` of the target."""
