"""Method ``usfda``, the client's stage: F_t starts from F_s and learns; M, F_s and D are frozen.

The weights come from the frozen source path ŷ = σ(D∘F_s∘M(x)), rescaled to [0, 1] over the target set:

    w = exp(max_{i≤|C_s|} ŷ_i)      w' = exp(1 − max_{i≤|C_s|} ŷ_i)
    L_d1 = w·(−log Σ_{k≤|C_s|} ẑ_k) + w'·(−log Σ_{k>|C_s|} ẑ_k)      ẑ = σ(D∘F_t∘M(x))
    L_d2 = w·H(softmax of the positive logits) + w'·H(softmax of the negative logits)
    L_d = L_d1 + β·L_d2
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ...config import Config
from ...data.samples import Matrix
from ..heads import UsfdaHead
from ..settings import FEW, UsfdaSettings
from ..vendor import SourceNetworks
from .networks import D, arrays, batches, from_arrays, in_pieces, make_f, torch_device

LOOK = 20  # steps between two looks at which samples are known
LOOKED_AT = 4000  # samples at most, evenly spaced: a larger target takes no longer
HUGE = 1e4  # stands for infinity in a loss, and keeps its gradient finite


def rescale(w: Tensor) -> Tensor:
    """To [0, 1] over the target set; over [1, e], all that w can be, where the set is too small to say more."""
    low, high = (w.min(), w.max()) if len(w) >= FEW else (w.new_tensor(1.0), w.new_tensor(math.e))
    return (w - low) / (high - low).clamp(min=1e-6)


def l_d1(z: Tensor, w: Tensor, w_: Tensor, n_source: int) -> Tensor:
    """w·(−log Σ_{k≤|C_s|} ẑ_k) + w'·(−log Σ_{k>|C_s|} ẑ_k) from logits, mean over the batch."""
    whole = z.logsumexp(1)
    positive, negative = z[:, :n_source].logsumexp(1), z[:, n_source:].logsumexp(1)
    return (w * (whole - positive).clamp(max=HUGE) + w_ * (whole - negative).clamp(max=HUGE)).mean()


def entropy(z: Tensor) -> Tensor:
    """H of softmax(z), by row."""
    log_p = z.log_softmax(1).clamp(min=-HUGE)
    return -(log_p.exp() * log_p).sum(1)


def l_d2(z: Tensor, w: Tensor, w_: Tensor, n_source: int) -> Tensor:
    """w·H_s + w'·H_n, mean over the batch."""
    return (w * entropy(z[:, :n_source]) + w_ * entropy(z[:, n_source:])).mean()


def train_target(
    networks: SourceNetworks,
    X: Matrix,
    settings: UsfdaSettings,
    seed: int,
    config: Config,
    watch: Callable[[int, UsfdaHead], None] | None = None,
) -> tuple[UsfdaHead, dict[str, list[float]]]:
    """The head with F_t, and the history of both losses.

    ``watch`` is called after every step with the number of steps so far and the head as it then is, which the next step
    changes. It cannot change what is learnt.
    """
    with torch_device(config) as device:
        n_source = networks.classes
        with torch.random.fork_rng():  # a new network draws its weights before it gets these
            f_s = from_arrays(make_f(networks.dim), networks.F_s).to(device)
            d = from_arrays(D(n_source, networks.negative_classes), networks.D).to(device)
        f_t = copy.deepcopy(f_s)

        def vectors(index: np.ndarray) -> Tensor:
            return torch.from_numpy(X[index]).to(device)

        index = np.arange(len(X))
        y_max = in_pieces(lambda v: d(f_s(v)).softmax(1)[:, :n_source].amax(1), vectors, index)
        similarity, difference = y_max.exp(), (1 - y_max).exp()
        if settings.rescale == "rank":
            similarity, difference = (x.argsort().argsort().float() for x in (similarity, difference))
        w, w_ = rescale(similarity), rescale(difference)
        optimiser = torch.optim.Adam(f_t.parameters(), lr=settings.lr, fused=True)
        next_batch = batches(index, settings.batch, np.random.default_rng(seed))
        history: dict[str, list[float]] = {"L_d1": [], "L_d2": []}
        some = np.unique(np.linspace(0, len(X) - 1, min(len(X), LOOKED_AT)).astype(int))
        known: Tensor | None = None  # which of them were at the last look

        def settled() -> bool:
            """Whether no more than the given share of samples has changed side since the last look."""
            nonlocal known
            f_t.eval()
            before, known = known, in_pieces(lambda v: d(f_t(v)).argmax(1) < n_source, vectors, some)
            f_t.train(len(X) >= FEW)
            return before is not None and float((known != before).float().mean()) <= settings.settled

        f_t.train(len(X) >= FEW)
        with config.progress(settings.steps, "adaptation", "steps") as advance:
            for step in range(settings.steps):
                batch = next_batch()
                z = d(f_t(vectors(batch)))
                of_batch = w[batch], w_[batch]
                if settings.rescale == "batch":
                    of_batch = rescale(similarity[batch]), rescale(difference[batch])
                one, two = l_d1(z, *of_batch, n_source), l_d2(z, *of_batch, n_source)
                optimiser.zero_grad()
                (one + settings.beta * two).backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                history["L_d1"].append(one.item())
                history["L_d2"].append(two.item())
                if not np.isfinite(history["L_d1"][-1] + history["L_d2"][-1]):
                    raise RuntimeError(f"adaptation diverged: the loss is not finite at step {step}")
                advance(1)
                if watch is not None:
                    watch(step + 1, UsfdaHead(networks, arrays(f_t)))
                if settings.settled and (step + 1) % LOOK == 0 and settled():
                    advance(settings.steps - step - 1)
                    break
    return UsfdaHead(networks, arrays(f_t)), history
