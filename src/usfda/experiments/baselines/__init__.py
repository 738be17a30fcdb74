"""The methods that `usfda compare` runs: our own, the baselines of the paper's tables, and successors.

The interface is in ``api.py``; every baseline is one file.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from ...errors import InputError

if TYPE_CHECKING:
    from .api import Baseline

# Name to module and class. A class is imported when it is asked for, so that the help, which lists the names, needs no
# torch.
BASELINES = {
    "mixture": "deployment:Mixture",
    "usfda": "deployment:Usfda",
    "usfda-b": "deployment:UsfdaB",
    "class-means": "class_means:ClassMeans",
    "source-only": "source_only:SourceOnly",
    "dann": "dann:DANN",
    "rtn": "rtn:RTN",
    "iwan": "iwan:IWAN",
    "pada": "pada:PADA",
    "ati": "ati:ATI",
    "osbp": "osbp:OSBP",
    "uan": "uan:UAN",
    "shot": "shot:SHOT",
    "ovanet": "ovanet:OVANet",
    "glc": "glc:GLC",
    "lead": "lead:LEAD",
}


def get_baseline(name: str) -> type[Baseline]:
    """Find a baseline's class.

    Parameters
    ----------
    name : str
        A name in ``BASELINES``, or a class of your own as ``file.py:Class`` or ``package.module:Class``.
    """
    from .api import Baseline

    place, _, attribute = BASELINES.get(name, name).rpartition(":")
    if not place:
        raise InputError(f"no method {name!r}; choose from {', '.join(BASELINES)}, or give your own as file.py:Class")
    baseline = getattr(_module(name, place), attribute, None)
    if not isinstance(baseline, type):
        raise InputError(f"{name}: {place} has no class {attribute}")
    if not issubclass(baseline, Baseline):
        raise InputError(f"{name}: {attribute} must be derived from {Baseline.__module__}.Baseline")
    attributes = {"source_free": bool, "rejects": str, "version": int}
    wrong = [key for key, kind in attributes.items() if not isinstance(getattr(baseline, key, None), kind)]
    if inspect.isabstract(baseline) or wrong:
        raise InputError(f"{name}: {attribute} must have source_free (bool), rejects (text), adapt and decide")
    return baseline


def baseline_version(name: str) -> int | str:
    """What of a baseline's code its records depend on: its version, and of your own the content of its file, hashed.

    The file counts in which the class and those that it is derived from are written; what these import does not.
    """
    baseline = get_baseline(name)
    modules = [
        kind.__module__ for kind in baseline.__mro__ if kind.__module__.partition(".")[0] not in ("usfda", "abc")
    ]
    files = [getattr(sys.modules[module], "__file__", None) for module in dict.fromkeys(modules)]
    content = b"".join(Path(file).read_bytes() for file in files if file)
    return f"{baseline.version}-{hashlib.sha256(content).hexdigest()[:16]}" if content else baseline.version


def _module(name: str, place: str) -> ModuleType:
    if name in BASELINES:
        return importlib.import_module(f".{place}", __name__)
    try:
        return _load(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(f"{name}: cannot be imported ({type(error).__name__}: {error})") from error


def _load(file: Path) -> ModuleType:
    """The module of a file; loaded once for each content."""
    try:
        name = f"usfda_own_{hashlib.sha256(file.read_bytes()).hexdigest()[:16]}"
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror})") from None
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(sys.modules[name])
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]
