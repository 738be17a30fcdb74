"""What int8 changes on images that it was not calibrated with, and the speed of both files, run in turns.

It is calibrated with one half of FOLDER; the other half and every further folder are compared with the float32 file,
whose answers are compared with the model's.

    python benchmarks/int8.py client.usfda FOLDER [FOLDER ...]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime

import usfda
from usfda.data.images import read_file
from usfda.data.reading import read

BATCH = 16


def times(sessions: Sequence[onnxruntime.InferenceSession], images: np.ndarray, rounds: int) -> np.ndarray:
    seconds = np.empty((rounds, len(sessions)))
    for i in range(rounds):
        for j, session in enumerate(sessions):
            started = time.perf_counter()
            session.run(None, {"image": images})
            seconds[i, j] = time.perf_counter() - started
    return np.median(seconds, 0)


def main(file: str, folder: str, *others: str) -> None:
    model, found = usfda.load(file), read(folder)
    assert isinstance(found, usfda.Samples)
    assert model.backbone is not None
    targets = {f"{folder}, other half": list(found.paths[1::2])}
    for other in others:
        further = read(other)
        assert isinstance(further, usfda.Samples)
        targets[other] = list(further.paths)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    with tempfile.TemporaryDirectory() as place:
        plain, small = Path(place, "plain.onnx"), Path(place, "small.onnx")
        usfda.export_onnx(model, plain)
        print(usfda.export_onnx(model, small, calibrate=found.paths[::2]))
        print(f"{plain.stat().st_size / 1e6:.1f} → {small.stat().st_size / 1e6:.1f} MB")
        sessions = [onnxruntime.InferenceSession(path, options) for path in (plain, small)]
    for name, paths in targets.items():
        answers = []
        for i in range(0, len(paths), BATCH):
            images = np.stack([model.backbone.prepare(read_file(path)) for path in paths[i : i + BATCH]])
            own = model.decide(model.backbone.run(images))
            label = np.where(own.known, own.best, len(model.classes_))
            answers.append(
                [label, own.score, *(out for s in sessions for out in s.run(["label", "score"], {"image": images}))]
            )
        label, score, label32, score32, label8, score8 = (
            np.concatenate(column) for column in zip(*answers, strict=True)
        )
        print(
            f"{name}, {len(paths)} images: {np.mean(label8 == label32):.1%} same label in int8, score differs by "
            f"{np.abs(score8 - score32).mean():.4f}; float32 and model: {np.sum(label32 != label)} labels differ, "
            f"score by up to {np.abs(score32 - score).max():.0e}"
        )
    for n, rounds in ((1, 30), (BATCH, 8)):
        before, after = times(sessions, np.resize(images, (n, *images.shape[1:])), rounds)
        print(f"{n} at a time: {before / after:.2f} times the speed ({1e3 * before:.1f}, {1e3 * after:.1f} ms)")


if __name__ == "__main__":
    main(*sys.argv[1:])
