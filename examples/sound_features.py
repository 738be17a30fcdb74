"""Vectors in place of images: sounds. What holds for them holds for text and tables, or whatever has an embedding.

    python examples/sound_features.py

The vendor has clean recordings of five kinds of sound. The client hears three of them, and three new ones, through a
noisy telephone line. All sounds are made here.
"""

from collections import Counter

import numpy as np
from scipy.signal import butter, sawtooth, sosfilt, spectrogram, square

import usfda

RATE, BANDS = 8000, 40  # samples a second; bands of the spectrum
VENDOR = ["siren", "bell", "whistle", "engine", "rain"]
CLIENT = ["siren", "bell", "whistle", "bird", "clock", "drum"]


def sound(kind: str, rng: np.random.Generator) -> np.ndarray:
    """One second of a sound, each time at another pitch and pace."""
    t = np.arange(RATE) / RATE
    pitch, pace, noise = rng.uniform(0.9, 1.1), rng.uniform(0.8, 1.2), rng.normal(size=RATE)
    again = (t * 4 * pace + rng.uniform()) % 1  # how far each of four beats a second has gone
    if kind == "siren":
        wave = np.sin(2 * np.pi * np.cumsum(900 * pitch + 300 * np.sin(4 * np.pi * pace * t)) / RATE)
    elif kind == "bell":
        k = np.array([[1], [2.76], [5.4]])  # the partials of a bell
        wave = (np.exp(-3 * t * k) * np.sin(2 * np.pi * 440 * pitch * k * t)).sum(0)
    elif kind == "whistle":
        wave = np.sin(2 * np.pi * 2000 * pitch * t + 2 * np.sin(12 * np.pi * pace * t))
    elif kind == "engine":
        wave = sawtooth(2 * np.pi * 90 * pitch * t) + 0.2 * noise
    elif kind == "clock":
        wave = np.exp(-60 * again) * noise
    elif kind == "bird":
        wave = (again < 0.4) * np.sin(2 * np.pi * np.cumsum(pitch * (2600 + 1500 * again)) / RATE)
    elif kind == "drum":
        wave = np.exp(-6 * again) * square(2 * np.pi * 330 * pitch * t)
    else:  # rain
        wave = noise
    return np.asarray(wave / np.abs(wave).max())


def telephone(wave: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """As it is heard at the other end: 300 to 3400 Hz, and some noise."""
    line = butter(2, [300, 3400], "bandpass", fs=RATE, output="sos")
    return np.asarray(sosfilt(line, wave)) + 0.01 * rng.normal(size=RATE)


def features(wave: np.ndarray) -> np.ndarray:
    """The logarithm of the loudness in each band of pitch: its mean over the second, and how much it varies."""
    pitches, _, power = spectrogram(wave, RATE, nperseg=512, noverlap=256)
    edges = np.geomspace(100, RATE / 2, BANDS)  # as the ear hears: narrow bands below, wide ones above
    bands = np.stack([power[np.abs(np.log(pitches[1:] / e)).argmin() + 1] for e in edges])
    loud = np.log(bands + 1e-8)
    return np.concatenate([loud.mean(1), loud.std(1)])


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    y = np.repeat(VENDOR, 40)
    X = np.stack([features(sound(kind, rng)) for kind in y])
    truth = np.repeat(CLIENT, 40)  # only to print what came of it
    X_new = np.stack([features(telephone(sound(kind, rng), rng)) for kind in truth])

    vendor = usfda.procure(X, y, method="mixture")  # an array with a row for each sample, and their labels
    adapted = usfda.adapt(vendor, X_new)  # rows alone
    assert adapted.findings is not None
    for sentence in usfda.describe(adapted.findings):
        print(sentence)
    before, after = vendor.predict(X_new), adapted.predict(X_new)
    for kind in CLIENT:
        mine = truth == kind
        print(f"{kind:8} before {dict(Counter(before[mine].tolist()))}, after {dict(Counter(after[mine].tolist()))}")
