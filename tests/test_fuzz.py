"""The harnesses of ``make fuzz`` on their seeds and on a few changed ones, without atheris, so that they stay whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz import graph
from fuzz.__main__ import SHARES
from fuzz.harness import NAMES, Change, Harness, make
from usfda.backbones.graph import check_graph

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # of Pillow, about damaged files


@pytest.fixture(scope="module", params=NAMES)
def harness(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    made = make(request.param, tmp_path_factory.mktemp(request.param))
    yield made
    made.close()


@pytest.fixture(scope="module")
def seeds(harness: Harness) -> list[bytes]:
    return harness.seeds()


def change(random: Random) -> Change:
    """In place of libFuzzer's own changes."""

    def changed(data: bytes, most: int) -> bytes:
        made = bytearray(data)
        for _ in range(random.randint(1, 4)):
            at = random.randint(0, len(made))
            made[at : at + random.randint(0, 2)] = random.randbytes(random.randint(0, 2))
        return bytes(made[:most])

    return changed


def test_every_harness_has_its_share() -> None:
    assert set(SHARES) == set(NAMES)


def test_seeds_are_short_and_pass(harness: Harness, seeds: list[bytes]) -> None:
    assert max(map(len, seeds)) <= harness.longest
    for seed in seeds:
        harness.one_input(seed)


@given(st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_changed_seeds_pass(harness: Harness, seeds: list[bytes], data: st.DataObject) -> None:
    random = Random(data.draw(st.integers(0, 2**32)))
    content = data.draw(st.sampled_from(seeds))
    for _ in range(random.randint(1, 3)):
        content = harness.mutate(content, harness.longest, random, change(random))
    harness.one_input(content)


def test_a_graph_that_takes_more_than_was_told_is_found() -> None:
    content = graph.build().SerializeToString()
    told = check_graph(content, "x", graph.SIZE)
    graph.run(content, told)
    for wrong in ({"bytes_per_image": told.bytes_per_image - 1}, {"dim": told.dim + 1}):
        with pytest.raises(AssertionError):
            graph.run(content, replace(told, **wrong))
