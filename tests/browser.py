"""A real browser for the tests of pages: the Chromium of this machine, driven by playwright; skipped without one."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@dataclass
class Visit:
    """A page that was opened in a fresh profile, every request that it made, and everything it complained of."""

    page: Page
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def faults_of_access(self) -> list[str]:
        """What axe-core has against the page as it is now: rule, and the elements that break it."""
        from axe_playwright_python.sync_playwright import Axe

        found = Axe().run(self.page).response["violations"]
        return [f"{fault['id']}: {' '.join(str(node['target']) for node in fault['nodes'])}" for fault in found]

    def scrolls_sideways(self) -> bool:
        """Whether the page is wider than the window."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))


Open = Callable[..., Visit]


@pytest.fixture(scope="module")  # no longer: while playwright runs, no other test can start a loop of asyncio
def browser() -> Iterator[Browser]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip("this machine has no Chromium")
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Open]:
    """Opens an address; options are those of a browser's context: ``viewport``, ``color_scheme``, ``has_touch``."""
    contexts = []

    def opened(address: str, **options: Any) -> Visit:
        context = browser.new_context(
            **{"viewport": {"width": 1280, "height": 800}, "reduced_motion": "reduce"} | options
        )
        contexts.append(context)
        context.set_default_timeout(60_000)  # a busy machine is slow, not wrong
        seen = Visit(context.new_page())
        context.on("request", lambda request: seen.requests.append(request.url))
        seen.page.on("pageerror", lambda error: seen.errors.append(str(error)))
        seen.page.on(
            "console", lambda said: seen.errors.append(said.text) if said.type in ("error", "warning") else None
        )
        seen.page.goto(address)
        return seen

    yield opened
    for context in contexts:
        context.close()
