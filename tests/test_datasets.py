"""The paper's data sets on small made-up copies, in the layouts in which they are distributed."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from conftest import texture
from PIL import Image
from scipy.io import savemat

from usfda import Samples
from usfda.data.reading import read
from usfda.errors import InputError
from usfda.experiments.datasets import (
    CommonClasses,
    ImagenetCaltech,
    benchmark_tasks,
    choose,
    differences,
    find,
    match_names,
)
from usfda.experiments.imagenet import Imagenet
from usfda.experiments.protocols import DATA_SETS, OFFICE31, OFFICE_HOME, PROTOCOLS, VISDA, DataSet
from usfda.experiments.tasks import Task

SYNSETS = {
    "n01440764": "tench, Tinca tinca",
    "n02879718": "bow",
    "n02841315": "binoculars, field glasses, opera glasses",
    "n04399382": "teddy, teddy bear",
    "n02009229": "crane, heron-like bird",
    "n03126707": "crane",
}
CALTECH = ["001.ak47", "012.binoculars", "090.teddy-bear", "091.crane-101", "213.top-hat", "257.clutter"]


def write(folder: Path, classes: list[str], each: int, suffix: str = "png", seed: int = 0) -> Path:
    rng = np.random.default_rng(seed)
    for c, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for i in range(each):
            Image.fromarray(texture(c % 6, rng, 16)).save(folder / name / f"{name[:3]}_{i}.{suffix}")
    return folder


@pytest.fixture(scope="session")
def office_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder above and one folder name of another spelling."""
    folder = tmp_path_factory.mktemp("home")
    for i, domain in enumerate(("Art", "Clipart", "Product", "RealWorld")):
        write(folder / "OfficeHomeDataset_10072016" / domain, list(OFFICE_HOME), 3, seed=i)
    return folder


@pytest.fixture(scope="session")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """VisDA, ImageNet in Kaggle's layout, Caltech-256, side by side."""
    folder = tmp_path_factory.mktemp("others")
    for i, part in enumerate(("train", "validation")):
        write(folder / "visda-2017" / part, list(VISDA), 4, seed=i)
    (folder / "visda-2017" / "test" / "trunk00").mkdir(parents=True)
    kaggle = folder / "imagenet"
    write(kaggle / "ILSVRC" / "Data" / "CLS-LOC" / "train", list(SYNSETS), 4, "JPEG")
    flat = kaggle / "ILSVRC" / "Data" / "CLS-LOC" / "val"
    flat.mkdir()
    rng = np.random.default_rng(1)
    lines = ["ImageId,PredictionString"]
    for i, wnid in enumerate([*SYNSETS, *SYNSETS]):
        name = f"ILSVRC2012_val_{i:08d}"
        Image.fromarray(texture(i % 6, rng, 16)).save(flat / f"{name}.JPEG")
        lines.append(f"{name},{wnid} 1 2 3 4 ")
    (kaggle / "LOC_val_solution.csv").write_text("\n".join(lines) + "\n")
    (kaggle / "LOC_synset_mapping.txt").write_text("".join(f"{wnid} {text}\n" for wnid, text in SYNSETS.items()))
    write(folder / "caltech" / "256_ObjectCategories", CALTECH, 4, "jpg")
    return folder


def sides(task: Task) -> tuple[Samples, Samples]:
    assert isinstance(task.source, Samples)
    assert isinstance(task.target, Samples)
    return task.source, task.target


def label_set(samples: Samples) -> set[str]:
    assert samples.labels is not None
    return set(samples.labels.tolist())


def sizes_of(task: Task) -> tuple[int, int]:
    return len(task.source_classes or ()), len(task.target_classes or ())


def test_label_sets_of_the_paper() -> None:
    sizes = {}
    for key, dataset in DATA_SETS.items():
        source, target = set(dataset.protocol.source), set(dataset.protocol.target)
        sizes[key] = len(source & target), len(source - target), len(target - source)
        assert source | target == set(dataset.classes)
    assert sizes == {"office31": (10, 10, 11), "office-home": (10, 5, 50), "visda": (6, 3, 3), "digits": (5, 2, 3)}
    assert list(OFFICE31[10:]) == sorted(OFFICE31[10:])
    assert list(OFFICE_HOME) == sorted(OFFICE_HOME)
    assert len(OFFICE_HOME) == 65
    assert DATA_SETS["office-home"].protocol.source[-1] == "Curtains"
    assert list(VISDA) == sorted(VISDA)


def test_office_home_is_found_below_and_its_tasks_are_named(office_home: Path) -> None:
    found = find(office_home, "office-home")
    assert len(found.pairs) == 12
    chosen = choose([found], "Ar-Cl, real world→art")
    assert [pair for _, pair in chosen] == [("Ar", "Cl"), ("Rw", "Ar")]
    task = found.task(("Rw", "Ar"))
    assert (task.id, task.name) == ("office-home/open-partial/Rw-Ar", "Rw→Ar")
    assert (len(sides(task)[0]), *sizes_of(task)) == (195, 15, 60)
    assert [task.name for task in found.tasks()] == ["→".join(pair) for pair in found.pairs]
    with pytest.raises(InputError, match="Ar-X"):
        choose([found], "Ar-X")


def test_two_data_sets_with_the_same_pair_are_two_tasks(tmp_path: Path) -> None:
    found = []
    for name, classes in (("one", "abcde"), ("two", "vwxyz")):
        dataset = DataSet(name, name.title(), {"S": "sketch", "R": "real"}, tuple(classes), 2, 1, (("S", "R"),))
        folders = {}
        for short, domain in dataset.domains.items():
            folders[short] = write(tmp_path / name / domain, list(classes), 1)
        found.append(CommonClasses(dataset, folders))
    for wanted in (None, "S-R", "sketch→real"):
        tasks = [benchmark.task(pair) for benchmark, pair in choose(found, wanted)]
        assert [task.id for task in tasks] == ["one/open-partial/S-R", "two/open-partial/S-R"]
        assert [label_set(sides(task)[0]) for task in tasks] == [set("abcde"), set("vwxyz")]
    ((benchmark, pair),) = choose(found, "two/S-R")
    assert (benchmark.id, pair) == ("two", ("S", "R"))
    with pytest.raises(InputError, match="three/S-R"):
        choose(found, "three/S-R")


def test_counts_that_are_not_the_published_ones_are_named(office_home: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = find(office_home, "office-home")
    found.task(("Ar", "Rw"))
    assert "Office-Home Art has 195 images, published 2,427" in found.differences
    assert "Office-Home Real World Bed has 3 images, published 23 to 99" in found.differences
    assert "not as published: Office-Home Art has 195 images" in caplog.text
    assert "and 61 more" in caplog.text


def test_published_counts() -> None:
    """The sums are those that the data sets' papers state; a full set has no difference, one image less has."""
    with (Path(__file__).parents[1] / "src" / "usfda" / "experiments" / "published_counts.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["class"] not in ("", "*")]
    totals = {"amazon": 2817, "dslr": 498, "webcam": 795, "train": 152397, "validation": 55388}
    for domain, total in totals.items():
        mine = [row for row in rows if row["domain"] == domain]
        counts = Counter({row["class"]: int(row["least"]) for row in mine})
        assert counts.total() == total
        assert len(counts) == (12 if domain in ("train", "validation") else 31)
        name = mine[0]["dataset"]
        assert differences(name, domain, counts) == []
        first = next(iter(counts))
        counts[first] -= 1
        assert [text.partition(" images")[0] for text in differences(name, domain, counts)] == [
            f"{name} {domain} {first} has {counts[first]:,}",
            f"{name} {domain} has {total - 1:,}",
        ]
    whole = dict.fromkeys(map(str, range(1000)), 50)
    assert differences("ImageNet", "val", whole) == []
    assert differences("Office-Home", "Art", {"Bed": 99}) == ["Office-Home Art has 99 images, published 2,427"]


def test_what_is_missing_is_said(office_home: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Office-31"):
        find(office_home, "office31")
    with pytest.raises(InputError, match="nowhere"):
        find(tmp_path / "nowhere", "office31")
    write(tmp_path / "a" / "amazon", ["pen"], 1)
    with pytest.raises(InputError, match="a/amazon"):
        find(tmp_path, "office31")
    for name in ("dslr", "webcam"):
        write(tmp_path / "a" / name / "images", list(OFFICE31), 1)
    with pytest.raises(InputError, match="back_pack"):
        find(tmp_path, "office31").task(("A", "D"))
    with pytest.raises(InputError, match="Caltech-256"):
        find(tmp_path, "imagenet-caltech")
    task = find(tmp_path, "office31").task(("D", "W"))  # one level deeper, as it is distributed
    assert len(sides(task)[0]) == 31


def test_protocols_of_compare(tmp_path: Path, office_home: Path) -> None:
    for name in ("amazon", "dslr", "webcam"):
        write(tmp_path / name, list(OFFICE31), 1)
    assert [task.name for task in benchmark_tasks(tmp_path)] == ["A→D", "A→W", "D→A", "D→W", "W→A", "W→D"]
    chosen = benchmark_tasks(tmp_path, "office31-partial", "W-A, amazon→dslr")
    assert [task.name for task in chosen] == ["W→A", "A→D"]
    assert chosen[0].id == "office31/partial/W-A"
    assert sizes_of(chosen[0]) == (31, 10)
    assert [task.name for task in benchmark_tasks(tmp_path, "partial", "W-A")] == ["W→A"]
    assert [task.name for task in benchmark_tasks(office_home, "office-home", "Pr-Cl")] == ["Pr→Cl"]
    with pytest.raises(InputError, match="A-X"):
        benchmark_tasks(tmp_path, wanted="A-X")
    with pytest.raises(InputError, match=f"no protocol 'office31-half'; choose from {', '.join(PROTOCOLS)}"):
        benchmark_tasks(tmp_path, "office31-half")


def test_visda(others: Path) -> None:
    found = find(others, "visda")
    task = found.task(("S", "R"))
    assert (task.name, *sizes_of(task)) == ("S→R", 9, 9)
    assert set(task.target_classes or ()) - set(task.source_classes or ()) == {"skateboard", "train", "truck"}
    assert "VisDA train has 48 images, published 152,397" in found.differences


def test_imagenet_caltech(others: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "usfda")
    found = find(others, "imagenet-caltech")
    there, back = found.task(("I", "C")), found.task(("C", "I"))
    assert "2 classes are shared" in caplog.text
    shared = {"012.binoculars", "090.teddy-bear"}
    own = {"n01440764", "n02879718", "n02009229", "n03126707"}
    assert [label_set(side) for side in sides(there)] == [shared | own, set(CALTECH) - {"257.clutter"}]
    assert [label_set(side) for side in sides(back)] == [set(CALTECH) - {"257.clutter"}, shared | own]
    assert all(Path(str(path)).parent.name == "val" for path in sides(back)[1].paths)
    assert (there.negative_classes, back.negative_classes) == (600, 200)
    assert "Caltech-256 256_ObjectCategories has 20 images, published 29,780" in found.differences


def test_names_are_matched_by_any_synonym_and_not_where_two_classes_have_one() -> None:
    assert match_names(CALTECH, SYNSETS) == {"n02841315": "012.binoculars", "n04399382": "090.teddy-bear"}
    assert match_names(["129.leopards-101"], {"n1": "leopard, x"}) == {"n1": "129.leopards-101"}
    assert match_names(["010.mug", "041.coffee-mug"], {"n1": "mug, coffee mug", "n2": "tench"}) == {}


def test_what_only_looks_alike_is_passed_over(tmp_path: Path) -> None:
    """A folder of train and validation with other classes, one of numbered classes; and an empty folder in a domain."""
    for part in ("train", "validation"):
        write(tmp_path / "a-cats" / part, ["cat"], 1)
        write(tmp_path / "visda" / part, list(VISDA), 2)
    (tmp_path / "visda" / "train" / "@eaDir").mkdir()
    write(tmp_path / "birds", ["001.Black_footed_Albatross"], 1)
    (tmp_path / "imagenet" / "train" / "n01440764").mkdir(parents=True)
    task = find(tmp_path, "visda").task(("S", "R"))
    assert len(sides(task)[0]) == 24
    chosen = read(task.source, classes=task.source_classes, labelled=True)
    assert (len(chosen), chosen.empty) == (18, ())
    with pytest.raises(InputError, match="Caltech-256"):
        find(tmp_path, "imagenet-caltech")


def test_a_folder_of_many_others_is_searched(tmp_path: Path) -> None:
    for i in range(60):
        (tmp_path / f"other{i}").mkdir()
    for part in ("train", "validation"):
        write(tmp_path / "visda" / part, list(VISDA), 1)
    assert find(tmp_path, "visda").name == "VisDA"


def test_shared_classes_from_a_list(others: Path) -> None:
    def found(shared: dict[str, str]) -> ImagenetCaltech:
        benchmark = find(others, "imagenet-caltech", shared)
        assert isinstance(benchmark, ImagenetCaltech)
        return benchmark

    benchmark = found({"top-hat": "n02879718", "001.ak47": "n01440764"})
    assert benchmark.shared() == {"n02879718": "213.top-hat", "n01440764": "001.ak47"}
    assert benchmark.notes[0].startswith(
        "ImageNet-Caltech: 2 classes are shared, by a list that was given (84 in the paper"
    )
    with pytest.raises(InputError, match="wnid"):
        found({"top-hat": "n02879718", "ak47": "n02879718"}).shared()
    with pytest.raises(InputError, match="top-hut"):
        found({"top-hut": "n02879718"}).shared()


def test_other_layouts_of_imagenet(tmp_path: Path) -> None:
    """Class folders for val with Caffe's list of names; and image-net.org's development kit with a flat val."""
    write(tmp_path / "train", list(SYNSETS), 1, "JPEG")
    imagenet = Imagenet.at(tmp_path)
    assert imagenet is not None
    with pytest.raises(InputError, match="LOC_synset_mapping"):
        imagenet.words(list(SYNSETS))
    with pytest.raises(InputError, match="val"):
        imagenet.read("val")
    flat = tmp_path / "val"
    flat.mkdir()
    for i in range(3):
        Image.new("RGB", (8, 8)).save(flat / f"ILSVRC2012_val_{i:08d}.JPEG")
    with pytest.raises(InputError, match="labels"):
        imagenet.read("val")
    kit = tmp_path / "ILSVRC2012_devkit_t12" / "data"
    kit.mkdir(parents=True)
    rows = [(i + 1, wnid, words) for i, (wnid, words) in enumerate(SYNSETS.items())]
    synsets = np.asarray(rows, dtype=[("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O")])
    savemat(kit / "meta.mat", {"synsets": synsets})
    (kit / "ILSVRC2012_validation_ground_truth.txt").write_text("4\n1\n2\n")
    assert Imagenet(tmp_path).words(list(SYNSETS)) == SYNSETS
    assert np.asarray(Imagenet(tmp_path).read("val").labels).tolist() == ["n04399382", "n01440764", "n02879718"]
    (kit / "ILSVRC2012_validation_ground_truth.txt").write_text("4\n1\n77\n")
    with pytest.raises(InputError, match="77"):
        Imagenet(tmp_path).read("val")
    (kit / "ILSVRC2012_validation_ground_truth.txt").write_text("4\n")
    with pytest.raises(InputError, match="labels"):
        Imagenet(tmp_path).read("val")
    (tmp_path / "synset_words.txt").write_text("n01440764 tench\n")
    with pytest.raises(InputError, match="n02879718"):
        Imagenet(tmp_path).words(list(SYNSETS))
    assert Imagenet(tmp_path).words(["n01440764"]) == {"n01440764": "tench"}
    for path in flat.glob("*.JPEG"):
        path.unlink()
    write(flat / ".", list(SYNSETS)[:2], 2, "JPEG")
    assert Counter(np.asarray(Imagenet(tmp_path).read("val").labels)) == {"n01440764": 2, "n02879718": 2}


def test_office31_to_the_ten_classes_of_caltech(tmp_path: Path) -> None:
    """31 source classes, ten of them in the target, under Office-31's names: partial, nothing private to the target."""
    for name in ("amazon", "dslr", "webcam"):
        write(tmp_path / "office31" / name, list(OFFICE31), 1)
    with pytest.raises(InputError, match="caltech10"):
        benchmark_tasks(tmp_path, "office31-caltech10")
    names = ["backpack", *OFFICE31[1:5], "laptop", *OFFICE31[6:10]]
    write(tmp_path / "caltech10", names, 2, "jpg")
    tasks = benchmark_tasks(tmp_path, "office31-caltech10")
    assert [task.id for task in tasks] == [f"office31-caltech10/partial/{domain}-C" for domain in "ADW"]
    for task in tasks:
        source, target = sides(task)
        assert (label_set(source), label_set(target)) == (set(OFFICE31), set(OFFICE31[:10]))
        assert len(target) == 20
    assert [t.name for t in benchmark_tasks(tmp_path, "office31-caltech10", "amazon-caltech10")] == ["A→C"]


@pytest.fixture
def reduced(tmp_path: Path) -> Path:
    """ImageNet with a few images per class and no val, Caltech-101."""
    write(tmp_path / "mini" / "train", list(SYNSETS), 4, "JPEG")
    (tmp_path / "mini" / "LOC_synset_mapping.txt").write_text("".join(f"{w} {text}\n" for w, text in SYNSETS.items()))
    write(tmp_path / "101_ObjectCategories", ["accordion", "BACKGROUND_Google", "binocular", "yin_yang"], 3, "jpg")
    return tmp_path


def test_a_reduced_imagenet_caltech_is_run_both_ways_and_never_called_the_papers(reduced: Path) -> None:
    there, back = benchmark_tasks(reduced, "imagenet-caltech")
    assert (there.id, there.name) == (
        "imagenet-caltech-reduced/open-partial/I-C",
        "ImageNet-mini → Caltech-101, reduced",
    )
    assert back.name == "Caltech-101 → ImageNet-mini, reduced"
    assert (there.negative_classes, back.negative_classes) == (600, 200)
    caltech, imagenet = {"accordion", "binocular", "yin_yang"}, (set(SYNSETS) - {"n02841315"}) | {"binocular"}
    assert [label_set(side) for side in sides(there)] == [imagenet, caltech]
    assert [label_set(side) for side in sides(back)] == [caltech, imagenet]
    found = find(reduced, "imagenet-caltech")
    found.tasks()
    assert found.differences == []
    assert found.notes[1:] == [
        "ImageNet-mini → Caltech-101, reduced: 1 shared classes, 5 private to the source, 2 to the target; "
        "24 and 9 images. It is not the paper's ImageNet-Caltech",
        "Caltech-101 → ImageNet-mini, reduced: 1 shared classes, 2 private to the source, 5 to the target; "
        "9 and 24 images. It is not the paper's ImageNet-Caltech",
    ]


def test_a_whole_imagenet_without_val_is_no_reduced_copy(reduced: Path, others: Path) -> None:
    """Only a small number of images per class makes it one; and Caltech-101 alone makes the pair a reduced one."""
    whole = find(others, "imagenet-caltech")
    assert (whole.id, whole.name) == ("imagenet-caltech", "ImageNet-Caltech")
    for i in range(100):
        (reduced / "mini" / "train" / "n01440764" / f"more{i}.JPEG").touch()
    found = find(reduced, "imagenet-caltech")
    assert found.name == "ImageNet and Caltech-101, reduced"
    with pytest.raises(InputError, match="val"):
        found.task(("C", "I"))
