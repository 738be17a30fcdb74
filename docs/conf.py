"""The documentation site: `make docs` builds it into docs/_build/html, with warnings as errors."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import usfda

HERE = Path(__file__).parent
GENERATED = HERE / "generated"  # made from the program and from its measured results, in every build
RESULTS = HERE.parent / "benchmarks" / "results"

project = "usfda"
version = release = usfda.__version__
copyright = "the usfda developers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["_build"]
nitpicky = False  # types of other libraries are not linked: their pages cannot be asked for when this is built offline

html_theme = "furo"
html_title = f"usfda {version}"
html_static_path = ["assets"]
html_css_files = ["site.css"]
html_show_sphinx = html_show_copyright = False

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]  # an included part of a page may begin below the first level

autodoc_typehints = "none"  # the signature has them
autodoc_member_order = "bysource"
autodoc_use_legacy_class_based = False
napoleon_google_docstring = False
napoleon_use_rtype = False

copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True

# Files at the top of the project are shown here, too; their links are relative to the top.
PAGES = {
    "README": "index",
    "ARCHITECTURE": "architecture",
    "CONTRIBUTING": "contributing",
    "SECURITY": "security",
    "CHANGELOG": "changes",
}


def commands() -> str:
    """Every command, from its own help."""
    args = [sys.executable, "-m", "typer", "usfda.cli.main", "utils", "docs", "--name", "usfda", "--title", "Commands"]
    return subprocess.run(args, check=True, capture_output=True, text=True, cwd=HERE).stdout


def measurements() -> str:
    """Every file of measured results as a table, with its provenance."""
    text = ["# Measured data", "Every file of `benchmarks/results/`, with version, date, commit, command and seeds."]
    for file in sorted(RESULTS.glob("*.csv")):
        options = ":header-rows: 1\n:class: measured"
        text.append(f"## {file.stem}\n\n```{{csv-table}}\n:file: ../../benchmarks/results/{file.name}\n{options}\n```")
    return "\n\n".join(text) + "\n"


def relink(app: object, relative_path: Path, parent_docname: str, content: list[str]) -> None:
    """Links of a file at the top of the project, as they are from a page of the site."""
    for old, new in (("](examples/README.md", "](examples.md"), ("](benchmarks/", "](../benchmarks/")):
        content[0] = content[0].replace(old, new)
    content[0] = re.sub(r"\[([^]]+)\]\([\w.-]+\.(?:cff|lock|json|py|ipynb|sh)\)", r"\1", content[0])  # not pages
    content[0] = re.sub(r"\]\((?:\.\./)?docs/", "](", content[0])
    for name, page in PAGES.items():
        content[0] = content[0].replace(f"]({name}.md", f"]({page}.md")


def relink_page(app: object, docname: str, content: list[str]) -> None:
    """Links of a page to files at the top of the project."""
    content[0] = content[0].replace("](../examples/README.md", "](examples.md")
    for name, page in PAGES.items():
        content[0] = content[0].replace(f"](../{name}.md", f"]({page}.md")


def setup(app: Any) -> None:
    """Write the generated pages, and correct links between the site and the top of the project."""
    GENERATED.mkdir(exist_ok=True)
    (GENERATED / "commands.md").write_text(commands())
    (GENERATED / "measurements.md").write_text(measurements())
    app.connect("include-read", relink)
    app.connect("source-read", relink_page)
