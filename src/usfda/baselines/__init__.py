"""The systems that `usfda compare` runs: our two methods, those of the paper's tables, and successors.

The interface is in api.py; every system is one file.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType

from ..runtime import InputError
from .api import Outcome, Source, System, core_code

__all__ = ["SYSTEMS", "Outcome", "Source", "System", "core_code", "fingerprint", "get_system"]

SYSTEMS = {
    "usfda": "usfda:Usfda",
    "paper": "usfda:Paper",
    "usfda-b": "usfda:UsfdaB",
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


def get_system(name: str) -> type[System]:
    """A system by its name, or a class of one's own: ``file.py:Class`` or ``package.module:Class``."""
    place, _, attribute = SYSTEMS.get(name, name).rpartition(":")
    if not place:
        raise InputError(f"no system {name!r}; there is {', '.join(SYSTEMS)}, or your own as file.py:Class")
    if name in SYSTEMS:
        module = importlib.import_module(f".{place}", __name__)
    elif place.endswith(".py"):
        module = _load(Path(place))
    else:
        try:
            module = importlib.import_module(place)
        except Exception as error:
            raise InputError(f"{name}: cannot be imported ({type(error).__name__}: {error})") from error
    system = getattr(module, attribute, None)
    if not (isinstance(system, type) and issubclass(system, System)):
        raise InputError(f"{name}: {place} has no class {attribute} that is a usfda.baselines.System")
    if inspect.isabstract(system) or not all(hasattr(system, field) for field in ("source_free", "rejects")):
        raise InputError(f"{name}: {attribute} must have source_free, rejects, adapt and decide")
    return system


def fingerprint(name: str) -> str:
    """Of the files that the system, the classes below it and the core are written in: when one changes, its runs are
    others."""
    modules = {kind.__module__ for kind in get_system(name).__mro__} - {"abc", "builtins"}
    contents = [Path(str(sys.modules[module].__file__)).read_bytes() for module in sorted(modules)]
    return hashlib.sha256(b"".join([*contents, core_code().encode()])).hexdigest()[:16]


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
        except Exception as error:
            del sys.modules[name]
            raise InputError(f"{file}: cannot be imported ({type(error).__name__}: {error})") from error
    return sys.modules[name]
