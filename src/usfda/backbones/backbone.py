"""M, the frozen backbone: prepared images in, vectors out, run by onnxruntime."""

from __future__ import annotations

import hashlib
import json
import math
import os
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np
from PIL import Image

from ..config import Device, available_cores
from ..data.images import decode
from ..errors import InputError
from ..memory import THREAD, check_room, ran_out
from .graph import MAX_CONTENT, GraphCost, check_graph

RECORD_KEYS = ("input_size", "crop_pct", "interpolation", "mean", "std")  # of timm's pretrained_cfg
MAX_SIDE = 2048  # of a prepared image; the largest published backbones take 1,024
PREPARATION = 2  # part of a feature's key: raise it whenever the same file would give other pixels
BATCH = 16  # images that run at once; more are no faster and hold more memory
BATCH_BYTES = 2**31  # what the intermediate tensors of one batch may take; a large backbone gets smaller batches
MOST_BYTES = available_cores() * BATCH_BYTES + MAX_CONTENT  # of tensors at once in all threads, and of packed weights


@dataclass(frozen=True)
class Backbone:
    """M: an ONNX graph and a record of how to prepare an image for it.

    The graph is untrusted: before it runs, everything in it that a backbone does not need is refused
    (``graph.py``).

    Parameters
    ----------
    name : str
        As it is shown and written into the card of a model.
    onnx : bytes
        The ONNX file, with all its weights inside.
    record : dict
        ``input_size``, ``crop_pct``, ``interpolation``, ``mean`` and ``std``, as in timm's ``pretrained_cfg``.
    device : {"auto", "cpu", "cuda"}
        Where it runs.
    last_layer : (array (J, d), array (J,)), optional
        Weight and bias of the classifier that the backbone was trained with, for whom procures a model: the logits are
        linear in the vector, so that M runs once for both.
    """

    name: str
    onnx: bytes = field(repr=False)
    record: dict[str, Any] = field(repr=False)
    device: Device = "auto"
    last_layer: tuple[np.ndarray, np.ndarray] | None = field(default=None, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:  # to another process without the session, which belongs to this one
        return Backbone, (self.name, self.onnx, self.record, self.device, self.last_layer)

    @cached_property
    def sha256(self) -> str:
        """Of the whole ONNX file; external data is refused, so it covers all weights."""
        return hashlib.sha256(self.onnx).hexdigest()

    @cached_property
    def providers(self) -> list[str]:
        """The execution providers of onnxruntime to use, the preferred one first."""
        gpu = "CUDAExecutionProvider" in load_onnxruntime().get_available_providers()
        if self.device == "cuda" and not gpu:
            raise InputError("device cuda: this onnxruntime has no CUDA; install onnxruntime-gpu, or use --device cpu")
        return ["CUDAExecutionProvider", "CPUExecutionProvider"][0 if gpu and self.device != "cpu" else 1 :]

    @cached_property
    def key(self) -> str:
        """What a feature depends on besides the image: the graph, the preparation, and what the graph runs on."""
        text = json.dumps([self.sha256, self.record, PREPARATION, self.providers[0]], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def cost(self) -> GraphCost:
        """What an image costs; an error where the graph holds what a backbone may not."""
        return check_graph(self.onnx, self.name, self.size)

    @cached_property
    def _session(self) -> Any:
        _ = self.cost  # nothing runs that was not checked
        runtime = load_onnxruntime()
        options = runtime.SessionOptions()
        # One thread per call: the extraction's workers each decode and run their own batch, so all cores stay busy.
        options.intra_op_num_threads = 1
        options.log_severity_level = 4  # its messages reach the user through our own errors
        # A file can be ONNX, which was checked, and at once of onnxruntime's own format, which would run in its place.
        options.add_session_config_entry("session.load_model_format", "ONNX")
        bound_memory()
        options.add_session_config_entry("session.use_env_allocators", "1")
        options.add_session_config_entry("session.use_device_allocator_for_initializers", "1")  # weights do not count
        try:
            return runtime.InferenceSession(self.onnx, options, providers=self.providers)
        except Exception as error:
            raise self._failure("load", error) from None

    def _failure(self, what: str, error: Exception) -> Exception:
        if ran_out(error):  # which is not the file's fault
            return MemoryError()
        return InputError(f"backbone {self.name}: onnxruntime cannot {what} it ({_first_line(error)})")

    @property
    def dim(self) -> int:
        """The size of a vector."""
        return self.cost.dim

    @cached_property
    def size(self) -> tuple[int, int]:
        """Height and width of a prepared image."""
        return int(self.record["input_size"][1]), int(self.record["input_size"][2])

    @cached_property
    def batch_size(self) -> int:
        """How many images run at once, so that their intermediate tensors stay within a bound."""
        return max(1, min(BATCH, BATCH_BYTES // max(1, self.cost.memory_per_image)))

    def prepare(self, content: bytes | Image.Image) -> np.ndarray:
        """The content of an image file, upright, scaled and centre-cropped in one step: uint8 (height, width, 3)."""
        height, width = self.size
        crop = float(self.record["crop_pct"])
        image = decode(content, least=math.ceil(max(width, height) / crop))
        scale = crop * min(image.width / width, image.height / height)
        left, upper = max(0, (image.width - width * scale) / 2), max(0, (image.height - height * scale) / 2)
        box = (left, upper, min(left + width * scale, image.width), min(upper + height * scale, image.height))
        how = Image.Resampling[str(self.record["interpolation"]).upper()]
        return np.asarray(image.resize((width, height), how, box=box))

    @cached_property
    def normalisation(self) -> tuple[np.ndarray, np.ndarray]:
        """What is subtracted from pixels, and what they are multiplied with then: (3, 1, 1) each, by colour."""
        mean, std = (np.asarray(self.record[key], np.float32)[:, None, None] * 255 for key in ("mean", "std"))
        return mean, 1 / std

    def normalise(self, images: np.ndarray) -> np.ndarray:
        """What the graph takes for prepared images (n, height, width, 3): float32 (n, 3, height, width)."""
        mean, scale = self.normalisation
        x = np.empty((len(images), 3, *self.size), np.float32)
        np.subtract(images.transpose(0, 3, 1, 2), mean, out=x)
        x *= scale
        return x

    def run(self, images: np.ndarray) -> np.ndarray:
        """v = M(x) for prepared images (n, height, width, 3)."""
        inputs = self._session.get_inputs()[0]
        fixed = isinstance(inputs.shape[0], int)
        step = inputs.shape[0] if fixed else self.batch_size
        if fixed and len(images) % step:
            raise InputError(f"backbone {self.name}: its batch size is fixed at {step}; export it with a free one")
        check_room(THREAD + 4 * images.size)  # NumPy may crash where it finds none for its own buffers
        x = self.normalise(images)
        try:
            pieces = [self._session.run(None, {inputs.name: x[i : i + step]})[0] for i in range(0, len(x), step)]
        except Exception as error:
            raise self._failure("run", error) from None
        v = np.concatenate(pieces)
        if not np.isfinite(v).all():
            raise InputError(f"backbone {self.name} gives NaN or infinite features")
        return v


def _first_line(error: Exception) -> str:
    """The message of onnxruntime, without names of nodes that a graph may have chosen to hide or colour the rest."""
    return "".join(c if c.isprintable() else "?" for c in str(error).strip().split("\n")[0][:300])


def load_onnxruntime() -> Any:
    """Load onnxruntime when it is first needed, and without telemetry.

    Its official builds report home what is run, and write an identifier of the machine into the user's folder, unless
    this variable changes that while they are loaded. A user's own choice stands, and the environment stays as it is.
    """
    name = "ORT_DISABLE_TELEMETRY"
    chosen = name in os.environ
    os.environ.setdefault(name, "1")
    try:
        import onnxruntime
    finally:
        if not chosen:
            os.environ.pop(name, None)
    return onnxruntime


@cache
def bound_memory() -> None:
    """Bound what all sessions of this process take for tensors, whatever they were counted to take."""
    runtime = load_onnxruntime()
    kind, use = runtime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, runtime.OrtMemType.DEFAULT
    arena = {"max_mem": MOST_BYTES, "arena_extend_strategy": -1, "initial_chunk_size_bytes": -1,
             "max_dead_bytes_per_chunk": -1}  # fmt: skip
    runtime.create_and_register_allocator(runtime.OrtMemoryInfo("Cpu", kind, 0, use), runtime.OrtArenaCfg(arena))


def check_record(record: Any, where: str) -> dict[str, Any]:
    """The five keys of a preparation record, or an error that names the fault."""
    if not isinstance(record, dict):
        raise InputError(f"{where}: the preparation record must be one JSON object")
    if missing := [key for key in RECORD_KEYS if key not in record]:
        raise InputError(f"{where}: the preparation record lacks {', '.join(missing)}")
    if str(record["interpolation"]).upper() not in Image.Resampling.__members__:
        raise InputError(f"{where}: unknown interpolation {record['interpolation']!r}")
    try:
        record = record | {key: list(record[key]) for key in ("input_size", "mean", "std")}
        size, mean, std = record["input_size"], record["mean"], record["std"]
        sound = len(size) == len(mean) == len(std) == size[0] == 3 and min(size) > 0
        sound = sound and all(isinstance(n, int) for n in size) and max(size) <= MAX_SIDE
        sound = sound and 0.1 <= record["crop_pct"] <= 1 and min(std) >= 1e-6
        sound = sound and all(abs(n) <= 1e6 for n in mean + std)  # far from what float32 can hold, on either side
    except (TypeError, IndexError):
        sound = False
    if not sound:
        raise InputError(
            f"{where}: input_size must be [3, height, width] of at most {MAX_SIDE}, mean and std three numbers each "
            "(std positive), crop_pct from 0.1 to 1"
        )
    return {key: record[key] for key in RECORD_KEYS}
