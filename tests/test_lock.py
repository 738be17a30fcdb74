"""What is installed: the lock file, the SBOM that is made of it, and what the package asks for, agree."""

import json
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def lock() -> dict[str, str]:
    """Versions by name. Every line is a pin and nothing else: no option, no address, no local build."""
    lines = [line.partition("#")[0].strip() for line in (ROOT / "requirements.lock").read_text().splitlines()]
    pins = [re.fullmatch(r"([a-z0-9-]+)==([0-9][0-9a-z.]*)", line) for line in lines if line]
    assert all(pins)
    return {pin[1]: pin[2] for pin in pins if pin}


def test_the_lock_has_what_the_package_asks_for(lock: dict[str, str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (extras,) = re.findall(r"^DEPLOYED := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    wanted = [*project["dependencies"]]
    for extra in extras.split():
        wanted += project["optional-dependencies"][extra]
    wanted += re.findall(r"^torch==.*", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    for requirement in map(Requirement, wanted):
        version = lock.get(canonicalize_name(requirement.name), "0")
        assert requirement.specifier.contains(version), (
            f"{requirement} is not in requirements.lock: run `make lock sbom`"
        )


def test_the_sbom_is_the_lock(lock: dict[str, str]) -> None:
    text = (ROOT / "sbom.cdx.json").read_text()
    bom = json.loads(text)
    assert bom["bomFormat"] == "CycloneDX"
    assert {part["name"]: part["version"] for part in bom["components"]} == lock, "run `make sbom`"
    assert {part["purl"] for part in bom["components"]} == {f"pkg:pypi/{name}@{v}" for name, v in lock.items()}
    assert "serialNumber" not in bom
    assert "timestamp" not in bom["metadata"]
    assert re.findall(r"https?://[^\"]*", text) == [bom["$schema"]]
