"""Print what the package and its tests require, but for torch and what requires it, for ``make test-python``."""

import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
extras = project["optional-dependencies"]
wanted = project["dependencies"] + [
    name
    for extra in ("demo", "heic", "parquet", "ray", "reproduce", "s3", "serve", "sign", "track", "dev")
    for name in extras[extra]
]
print(*(name for name in wanted if not name.startswith(("torch", "efficientnet-lite-pytorch", "usfda["))), sep="\n")
