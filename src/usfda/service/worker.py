"""The process that adapts while the service answers: ``python -m usfda.service.worker``.

It is given a line of JSON, then, where the images are in memory, their vectors, and writes lines of JSON: progress, and
in the end what was found. When the pipe that it is given them by closes, the service is gone, and so is the process.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np

from ..config import Config
from ..data.samples import Features, Samples
from ..model import Model, load
from .answers import findings_of
from .kept import key_of

NICE = 10  # predictions come first
BEGUN, LOADED, FEATURES, FITTED = 0.1, 0.3, 0.5, 0.9  # progress: it runs, all is loaded, the vectors are there, fitted
VECTORS = "features"  # how the work is called that ends with the vectors
CHANGES = 500  # images with another label than before that are named


def compare(before: Model, after: Model, features: Features) -> dict[str, Any]:
    """How many of the images have another label than before, and which."""
    old, new = (model.labels_of(model.decide(features.X)) for model in (before, after))
    changed = np.flatnonzero(old != new)
    assert features.paths is not None
    return {
        "images": len(features),
        "changed": len(changed),
        "changes": [
            {"image": key_of(str(features.paths[i])), "before": str(old[i]), "after": str(new[i])}
            for i in changed[:CHANGES].tolist()
        ],
    }


def run(task: Mapping[str, Any], X: np.ndarray | None, tell: Callable[[dict[str, Any]], None]) -> None:
    """Adapt to images, whose vectors are given or in the cache, write the model, and tell what was found."""
    tell({"progress": BEGUN})
    from ..stages.adapt import adapt  # which takes seconds, longer than all else where the images are few

    @contextmanager
    def progress(total: int, text: str, unit: str) -> Iterator[Callable[[int], None]]:
        done, (low, high) = 0, (LOADED, FEATURES) if text == VECTORS else (FEATURES, FITTED)

        def advance(n: int) -> None:
            nonlocal done
            done += n
            tell({"progress": low + (high - low) * done / max(total, 1)})

        yield advance

    config = Config(task["threads"], task["cache"] and Path(task["cache"]), progress)
    model, names = load(task["model"]), [Path(name) for name in task["images"]]
    tell({"progress": LOADED})
    target = Samples(names) if X is None else Features(X, paths=names)
    features = model.features(target, config=config, text=VECTORS)
    tell({"progress": FEATURES})
    assert features.paths is not None
    new = set(names[task["first"] :])
    adapted = adapt(
        model,
        features[np.flatnonzero([path in new for path in features.paths])],
        method="usfda" if model.vendor.class_statistics is None else "mixture",
        update=model.head.updatable,
        config=config,
    )
    tell({"progress": FITTED})
    adapted.find_examples(features, adapted.decide(features.X))
    adapted.examples = {c: [key_of(name) for name in found] for c, found in adapted.examples.items()}
    found = adapted.findings
    assert found is not None
    compared = compare(model, adapted, features)
    adapted.save(task["output"])
    tell({"progress": 1.0, "findings": findings_of(found), "comparison": compared})


def main() -> None:
    """Run as a process of its own."""
    os.nice(NICE)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library may print is no answer

    def tell(message: dict[str, Any]) -> None:
        print(json.dumps(message), file=answers, flush=True)

    def leave_with_the_service() -> None:
        os.read(0, 1)  # not through Python's buffer, whose lock the end of the process would wait for
        os._exit(1)

    task = json.loads(sys.stdin.buffer.readline())
    vectors = sys.stdin.buffer.read(task["bytes"])
    Thread(target=leave_with_the_service, daemon=True).start()
    try:
        run(task, np.load(io.BytesIO(vectors), allow_pickle=False) if vectors else None, tell)
    except Exception as error:
        tell({"progress": 0.0, "failed": f"{type(error).__name__}: {error}"})
        sys.exit(1)


if __name__ == "__main__":
    main()
