"""Synthetic sounds in four recording conditions; a vector is the loudness in bands of pitch.

A class is a random recipe: a source (sine, partials, saw-tooth, pulses, noise), how its pitch moves, and how its
loudness does. Every sound of the class has its own pitch, pace and phase.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.signal import butter, sawtooth, sosfilt, spectrogram, square

RATE, BANDS, CLASSES, PER_CLASS = 8000, 40, 40, 30
CONDITIONS = ("clean", "telephone", "room", "street")


def recipe(rng: np.random.Generator) -> dict[str, float]:
    """Of one class."""
    return {
        "source": rng.integers(5), "pitch": np.exp(rng.uniform(np.log(120), np.log(2500))),
        "partial": rng.uniform(1.3, 4), "glide": rng.choice([0, 0, 0.15, 0.4]) * rng.uniform(0.5, 1.5),
        "pace": rng.uniform(1, 9), "decay": rng.choice([0, 2, 8, 40]), "low": rng.uniform(0.02, 0.9),
    }  # fmt: skip


def sound(of: dict[str, float], rng: np.random.Generator) -> np.ndarray:
    """One second."""
    t = np.arange(RATE) / RATE
    pitch, pace = of["pitch"] * rng.uniform(0.9, 1.1), of["pace"] * rng.uniform(0.85, 1.15)
    again = (t * pace + rng.uniform()) % 1
    phase = 2 * np.pi * np.cumsum(pitch * (1 + of["glide"] * np.sin(2 * np.pi * (pace * t + rng.uniform())))) / RATE
    noise = rng.normal(size=RATE)
    if of["source"] == 0:
        wave = np.sin(phase)
    elif of["source"] == 1:
        wave = np.sin(phase) + 0.5 * np.sin(of["partial"] * phase)
    elif of["source"] == 2:
        wave = sawtooth(phase) + 0.1 * noise
    elif of["source"] == 3:
        wave = square(phase)
    else:
        edge = float(np.clip(of["low"], 0.03, 0.9))
        wave = sosfilt(butter(2, [edge * 0.5, min(edge * 1.1, 0.99)], "bandpass", output="sos"), noise)
    wave = wave * np.exp(-of["decay"] * again)
    return np.asarray(wave / np.abs(wave).max())


def heard(wave: np.ndarray, condition: str, rng: np.random.Generator) -> np.ndarray:
    """The wave in a recording condition."""
    if condition == "telephone":
        line = butter(2, [300, 3400], "bandpass", fs=RATE, output="sos")
        return np.asarray(sosfilt(line, wave)) + 0.01 * rng.normal(size=RATE)
    if condition == "room":
        echo = np.exp(-np.arange(RATE // 4) / (RATE * rng.uniform(0.02, 0.08))) * rng.normal(size=RATE // 4)
        far: np.ndarray = np.convolve(wave, echo / np.abs(echo).sum() * 4)[:RATE]
        return far + 0.003 * rng.normal(size=RATE)
    if condition == "street":
        hum = np.cumsum(rng.normal(size=RATE))
        near: np.ndarray = rng.uniform(0.1, 0.4) * (hum - hum.mean()) / np.abs(hum).max() + 0.02 * rng.normal(size=RATE)
        street: np.ndarray = wave + near
        return street
    return np.asarray(wave)


def bands(wave: np.ndarray) -> np.ndarray:
    """The logarithm of the loudness in each band: its mean over the second, and its deviation."""
    pitches, _, power = spectrogram(wave, RATE, nperseg=512, noverlap=256)
    edges = np.geomspace(100, RATE / 2, BANDS)
    loud = np.log(np.stack([power[np.abs(np.log(pitches[1:] / e)).argmin() + 1] for e in edges]) + 1e-8)
    return np.concatenate([loud.mean(1), loud.std(1)])


def sounds() -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """For each condition its name, vectors and classes."""
    rng = np.random.default_rng(0)
    recipes = [recipe(rng) for _ in range(CLASSES)]
    y = np.repeat(np.arange(CLASSES), PER_CLASS)
    for condition in CONDITIONS:
        X = np.stack([bands(heard(sound(recipes[label], rng), condition, rng)) for label in y])
        yield f"sound-{condition}", X.astype(np.float32), np.char.add("s", y.astype(str))
