"""Signatures of model files: real keys, real certificates, and everything that a stranger could hand over instead."""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest
from conftest import blobs, write_photos
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import given, settings
from hypothesis import strategies as st
from serving import PATIENCE

from usfda import Config, InputError, adapt, load, procure
from usfda.cli.main import main
from usfda.modelfile import read_model_file
from usfda.service.limits import Limits
from usfda.service.service import Service
from usfda.signing import sign, verify
from usfda.text.findings import own_file

Run = Callable[..., tuple[int, str, str]]
PrivateKey = ec.EllipticCurvePrivateKey
DOCS = Path(__file__).parents[1] / "docs"
NONE, SECRET = serialization.NoEncryption(), serialization.BestAvailableEncryption(b"sesame")
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], cache: Path) -> Run:
    def call(*args: object) -> tuple[int, str, str]:
        code = main(["--cache", str(cache), *map(str, args)])
        return code, *capsys.readouterr()

    return call


def write_private(file: Path, key: Any, encryption: serialization.KeySerializationEncryption = NONE) -> Path:
    file.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption))
    return file


def write_public(file: Path, key: Any) -> Path:
    public = serialization.PublicFormat.SubjectPublicKeyInfo
    file.write_bytes(key.public_key().public_bytes(serialization.Encoding.PEM, public))
    return file


KEY = ec.generate_private_key(ec.SECP256R1())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small model, a pair of keys and the signature."""
    folder = tmp_path_factory.mktemp("made")
    procure(*blobs([0, 1], 8, d=6), method="mixture").save(folder / "vendor.usfda")
    write_private(folder / "vendor.key", KEY)
    write_public(folder / "vendor.pub", KEY)
    sign(folder / "vendor.usfda", folder / "vendor.key")
    return folder


@pytest.fixture
def vendor(made: Path, tmp_path: Path) -> Path:
    """The same, to be changed by a test."""
    shutil.copytree(made, tmp_path / "vendor")
    return tmp_path / "vendor"


def refusal(folder: Path, key: str = "vendor.pub") -> str:
    """Why the model of a folder is refused, by `verify` and by `load` alike."""
    with pytest.raises(InputError) as refused:
        verify(folder / "vendor.usfda", folder / key)
    with pytest.raises(InputError) as again:
        load(folder / "vendor.usfda", signed_by=folder / key)
    assert str(refused.value) == str(again.value)
    assert len(str(refused.value).splitlines()) == 1
    return str(refused.value)


def test_the_whole_path(run: Run, vendor: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(vendor)
    Path("vendor.usfda.sig").unlink()
    code, said, _ = run("sign", "vendor.usfda", "--key", "vendor.key")
    assert (code, said) == (0, "vendor.usfda.sig: hand it out beside the model\n")
    sha256 = hashlib.sha256(Path("vendor.usfda").read_bytes()).hexdigest()
    code, said, _ = run("verify", "vendor.usfda", "--key", "vendor.pub")
    assert (code, said) == (0, f"vendor.usfda: signed with vendor.pub, sha256 {sha256}\n")
    features = tmp_path / "new.npz"
    np.savez(features, X=blobs([0, 1, 7], 12, d=6, seed=1)[0])
    labelled = tmp_path / "labelled.npz"
    np.savez(labelled, X=blobs([0, 1], 3, d=6, seed=2)[0], y=["c0"] * 3 + ["c1"] * 3)
    wanted = ("--require-signature", "vendor.pub")
    code, _, notes = run("adapt", "vendor.usfda", features, "-o", "client.usfda", *wanted)
    assert code == 0
    assert own_file("vendor.usfda", "vendor.pub", "client.usfda") in notes
    assert run("predict", "vendor.usfda", features, *wanted)[0] == 0
    assert run("evaluate", "vendor.usfda", labelled, *wanted)[0] == 0
    for command in (
        ["predict", "client.usfda", features],
        ["adapt", "client.usfda", features, "-o", "again.usfda"],
        ["evaluate", "client.usfda", labelled],
        ["teach", "client.usfda", labelled, "-o", "again.usfda"],
        ["report", "client.usfda", features, "-o", "again.html"],
        ["export", "client.usfda", "-o", "again.onnx"],
    ):
        code, _, notes = run(*command, *wanted)
        assert code == 2
        assert "client.usfda.sig" in notes
    assert not list(vendor.glob("again*"))
    assert load("vendor.usfda", signed_by="vendor.pub").classes_ == ["c0", "c1"]


def test_a_folder_for_a_hub(vendor: Path) -> None:
    load(vendor / "vendor.usfda").save(f"{vendor}/hub/")
    assert sign(vendor / "hub", vendor / "vendor.key") == vendor / "hub" / "model.usfda.sig"
    assert load(vendor / "hub", signed_by=vendor / "vendor.pub").classes_ == ["c0", "c1"]


def test_a_link_is_followed(vendor: Path, tmp_path: Path) -> None:
    (tmp_path / "link.usfda").symlink_to(vendor / "vendor.usfda")
    sign(tmp_path / "link.usfda", vendor / "vendor.key")
    sha256 = verify(vendor / "vendor.usfda", vendor / "vendor.pub")
    assert verify(tmp_path / "link.usfda", vendor / "vendor.pub") == sha256


def test_what_is_refused_has_its_own_line(vendor: Path, tmp_path: Path) -> None:
    model, signature = vendor / "vendor.usfda", vendor / "vendor.usfda.sig"
    write_public(vendor / "other.pub", ec.generate_private_key(ec.SECP256R1()))
    assert str(vendor / "other.pub") in refusal(vendor, "other.pub")
    assert "private" in refusal(vendor, "vendor.key")
    assert "missing.pub" in refusal(vendor, "missing.pub")
    for name, key in {"rsa": rsa.generate_private_key(65537, 2048), "ed": ed25519.Ed25519PrivateKey.generate()}.items():
        write_public(vendor / name, key)
        assert name in refusal(vendor, name)
    good = signature.read_bytes()
    signature.unlink()
    assert refusal(vendor) == f"{model}: is not signed: there is no vendor.usfda.sig beside it"
    os.mkfifo(signature)  # must not wait for somebody to write
    assert "signed" in refusal(vendor)
    signature.unlink()
    signature.write_bytes(good)
    procure(*blobs([0, 1], 9, d=6), method="mixture").save(model)
    assert "changed" in refusal(vendor)
    for content in (model.read_bytes() + b"\0", b"no model"):
        model.write_bytes(content)
        assert "damaged" in refusal(vendor)
    assert "| not a usfda model file, or damaged |" in (DOCS / "signing.md").read_text()


def test_keys_that_cannot_sign(vendor: Path) -> None:
    model = vendor / "vendor.usfda"
    before = (vendor / "vendor.usfda.sig").read_bytes()
    write_private(vendor / "rsa.key", rsa.generate_private_key(65537, 2048))
    write_private(vendor / "k1.key", ec.generate_private_key(ec.SECP256K1()))
    for name, why in {
        "rsa.key": "no key of the curves", "k1.key": "no key of the curves", "vendor.pub": "no private key",
        "vendor.usfda.sig": "no private key", "missing.key": "cannot be read",
    }.items():  # fmt: skip
        with pytest.raises(InputError, match=why):
            sign(model, vendor / name)
    (vendor / "vendor.usfda").write_bytes(b"no model")
    with pytest.raises(InputError, match="model"):
        sign(model, vendor / "vendor.key")
    assert (vendor / "vendor.usfda.sig").read_bytes() == before


@pytest.mark.parametrize("curve", [ec.SECP384R1(), ec.SECP521R1()])
def test_other_curves(vendor: Path, curve: ec.EllipticCurve) -> None:
    key = ec.generate_private_key(curve)
    sign(vendor / "vendor.usfda", write_private(vendor / "other.key", key))
    verify(vendor / "vendor.usfda", write_public(vendor / "other.pub", key))


def test_a_password_comes_from_the_environment(run: Run, vendor: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_private(vendor / "vendor.key", KEY, SECRET)
    call = ("sign", vendor / "vendor.usfda", "--key", vendor / "vendor.key")
    code, _, error = run(*call)
    assert code == 2
    assert "USFDA_KEY_PASSWORD" in error
    monkeypatch.setenv("USFDA_KEY_PASSWORD", "wrong")
    code, _, error = run(*call)
    assert code == 2
    assert "wrong" in error
    monkeypatch.setenv("USFDA_KEY_PASSWORD", "sesame")
    (vendor / "vendor.usfda.sig").unlink()
    assert run(*call)[0] == 0
    verify(vendor / "vendor.usfda", vendor / "vendor.pub")
    write_private(vendor / "vendor.key", KEY)  # a password that the key does not need does no harm
    assert run(*call)[0] == 0


def test_a_password_is_asked_for_at_a_terminal(vendor: Path) -> None:
    write_private(vendor / "vendor.key", KEY, SECRET)
    (vendor / "vendor.usfda.sig").unlink()
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "usfda", "sign", "vendor.usfda", "--key", "vendor.key"]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=vendor, start_new_session=True) as p:
        os.close(theirs)
        seen = b""
        with suppress(OSError):  # Linux says so that the other end is closed
            while select.select([ours], [], [], PATIENCE)[0] and (more := os.read(ours, 1000)):
                seen += more
                if more.endswith(b"Password of vendor.key: "):
                    os.write(ours, b"sesame\n")
        try:
            p.wait(PATIENCE)
        finally:
            p.kill()
    os.close(ours)
    assert p.returncode == 0, seen
    assert b"sesame" not in seen
    verify(vendor / "vendor.usfda", vendor / "vendor.pub")


# Strangers


def statement(sha256: str, **changes: Any) -> dict[str, Any]:
    """What a signature of ``model-signing`` signs."""
    resources = changes.pop("resources", [{"name": ".", "algorithm": "sha256", "digest": sha256}])
    serial = {"method": "files", "hash_type": "sha256", "allow_symlinks": False} | changes.pop("serialization", {})
    root = hashlib.sha256(b"".join(bytes.fromhex(resource["digest"]) for resource in resources)).hexdigest()
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "vendor.usfda", "digest": {"sha256": root}}],
        "predicateType": "https://model_signing/signature/v1.0",
        "predicate": {"serialization": serial, "resources": resources},
    } | changes


def bundle(payload: bytes, kind: str = "application/vnd.in-toto+json", signed_kind: str | None = None) -> bytes:
    """A signature that really is of KEY, over anything."""
    signed_kind = signed_kind or "application/vnd.in-toto+json"
    signed = b" ".join([f"DSSEv1 {len(signed_kind)} {signed_kind} {len(payload)}".encode(), payload])
    public = KEY.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    signature = KEY.sign(signed, ec.ECDSA(hashes.SHA256()))
    envelope = {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": kind,
        "signatures": [{"sig": base64.b64encode(signature).decode(), "keyid": ""}],
    }
    material = {"publicKey": {"hint": hashlib.sha256(public).hexdigest()}, "tlogEntries": []}
    media = "application/vnd.dev.sigstore.bundle.v0.3+json"
    return json.dumps({"mediaType": media, "verificationMaterial": material, "dsseEnvelope": envelope}).encode()


def test_signatures_of_the_right_key_over_something_else(vendor: Path) -> None:
    """The key's owner may have signed other things: none of them vouches for this file."""
    content = (vendor / "vendor.usfda").read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    signature = vendor / "vendor.usfda.sig"
    signature.write_bytes(bundle(json.dumps(statement(sha256)).encode()))
    assert verify(vendor / "vendor.usfda", vendor / "vendor.pub") == sha256  # so the changes below are what is refused

    def resource(name: str, digest: str = sha256, algorithm: str = "sha256") -> dict[str, str]:
        return {"name": name, "algorithm": algorithm, "digest": digest}

    (vendor / "outside").write_bytes(content)
    blake2 = hashlib.blake2b(content).hexdigest()
    hostile: list[dict[str, Any]] = [
        {"resources": []},
        {"resources": [], "serialization": {"ignore_paths": ["."]}},
        {
            "resources": [],
            "serialization": {"ignore_paths": ["", "/", "..", str(vendor), str(vendor / "vendor.usfda")]},
        },
        {"resources": [resource("../outside")], "serialization": {"ignore_paths": ["."]}},
        {"resources": [resource(str(vendor / "outside"))]},
        {"resources": [resource("vendor.usfda")]},
        {"resources": [resource("."), resource("../outside")]},
        {"resources": [resource(f".:0:{len(content)}")], "serialization": {"method": "shards", "shard_size": 10**9}},
        {"resources": [resource(".", blake2, "blake2")], "serialization": {"hash_type": "blake2"}},
        {"resources": [resource(".", "00" * 32)]},
        {"serialization": {"method": "nothing"}},
        {"subject": []},
        {"subject": [{"name": "vendor.usfda", "digest": {"sha256": "00" * 32}}]},
        {"predicateType": "https://slsa.dev/provenance/v1"},
        {"_type": "https://in-toto.io/Statement/v0.1"},
        {"predicate": None},
        {"predicate": []},
    ]
    for changes in hostile:
        signature.write_bytes(bundle(json.dumps(statement(sha256, **changes)).encode()))
        refusal(vendor)
    right = json.dumps(statement(sha256)).encode()
    for wrong in (bundle(right, "text/plain"), bundle(right, signed_kind="text/plain"), bundle(b"[]"), bundle(b"")):
        signature.write_bytes(wrong)
        refusal(vendor)


def test_what_is_no_signature(vendor: Path) -> None:
    signature = vendor / "vendor.usfda.sig"
    good = signature.read_bytes()
    whole = json.loads(good)
    parts = [{key: value for key, value in whole.items() if key != left_out} for left_out in whole]
    others: list[Any] = [None, [], "text", 1, {}, *parts, whole | {"dsseEnvelope": None}, whole | {"mediaType": 7}]
    texts = [
        b"",
        b"\xff\xfe",
        b"nonsense",
        b"[" * 100_000,
        b'{"a":' * 40_000,
        b"NaN",
        *(json.dumps(o).encode() for o in others),
    ]
    for text in texts:
        signature.write_bytes(text)
        assert str(signature) in refusal(vendor)
    for end in range(0, len(good) - 1, 50):
        signature.write_bytes(good[:end])
        refusal(vendor)
    envelope = whole["dsseEnvelope"]
    for count in (0, 2):  # the library looks at the first: of two, a stranger's may come first
        strange = {"sig": base64.b64encode(b"0" * 70).decode(), "keyid": ""}
        signatures = [strange, *envelope["signatures"]][:count]
        signature.write_text(json.dumps(whole | {"dsseEnvelope": envelope | {"signatures": signatures}}))
        refusal(vendor)
    os.truncate(signature, 10 * 2**30)  # without any memory or disk behind it
    assert "262,144" in refusal(vendor)
    signature.write_bytes(good + b"\x1b]0;title\x07")
    refusal(vendor)


def test_a_refusal_shows_nothing_that_moves_a_cursor(run: Run, vendor: Path) -> None:
    kind = "\x1b[2J\u202e" + "x" * 100_000
    (vendor / "vendor.usfda.sig").write_bytes(bundle(b"{}", kind))
    code, _, error = run("verify", vendor / "vendor.usfda", "--key", vendor / "vendor.pub")
    assert code == 2
    assert error.strip().isprintable()
    assert len(error) < 1500


def test_an_adapted_file_says_what_can_be_compared(run: Run, vendor: Path) -> None:
    file, adapted = vendor / "vendor.usfda", vendor / "client.usfda"
    adapt(file, blobs([0, 1, 7], 12, d=6, seed=1)[0]).save(adapted)
    code, _, error = run("verify", adapted, "--key", vendor / "vendor.pub")
    said = " ".join(error.split())
    assert code == 2
    assert "it was adapted, and a signature is of the vendor's file as it came" in said
    assert load(file).vendor_sha256[:12] in said
    assert f"usfda inspect {adapted}" in said
    code, shown, _ = run("inspect", adapted)
    assert load(file).vendor_sha256 in shown
    file.write_bytes(file.read_bytes()[:-1])
    assert "it was adapted" not in run("verify", file, "--key", vendor / "vendor.pub")[2]


def meaning(signature: bytes) -> list[bytes]:
    """What counts in a signature: the payload that was signed, and the signature of it."""
    envelope = json.loads(signature)["dsseEnvelope"]
    return [base64.b64decode(text) for text in (envelope["payload"], envelope["signatures"][0]["sig"])]


@settings(max_examples=150, deadline=None)
@given(place=st.integers(0), bit=st.integers(0, 7), of_model=st.booleans())
def test_any_flipped_bit_is_refused_or_changes_no_meaning(made: Path, place: int, bit: int, of_model: bool) -> None:
    changed = made / "changed"
    changed.mkdir(exist_ok=True)
    files = {name: (made / name).read_bytes() for name in ("vendor.usfda", "vendor.usfda.sig")}
    name = "vendor.usfda" if of_model else "vendor.usfda.sig"
    flipped = bytearray(files[name])
    flipped[place % len(flipped)] ^= 1 << bit
    for other, content in (files | {name: bytes(flipped)}).items():
        (changed / other).write_bytes(content)
    try:
        load(changed / "vendor.usfda", signed_by=made / "vendor.pub")
    except InputError:
        return
    assert not of_model
    assert meaning(bytes(flipped)) == meaning(files[name])


def test_every_byte_of_a_model_counts(vendor: Path) -> None:
    """At the borders of its parts, where headers and contents meet, each byte; elsewhere some."""
    model = vendor / "vendor.usfda"
    content = model.read_bytes()
    marks = [found.start() for found in re.finditer(rb"PK..", content)]
    places = {mark + i for mark in marks for i in range(-3, 50)} | set(range(0, len(content), 97)) | {len(content) - 1}
    for place in sorted(p for p in places if 0 <= p < len(content)):
        model.write_bytes(content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :])
        refusal(vendor)
    for other in (content + b"\0", content[:-1], b"\0" + content):
        model.write_bytes(other)
        refusal(vendor)


def test_the_bytes_that_are_loaded_are_those_that_were_verified(vendor: Path) -> None:
    model, other = vendor / "vendor.usfda", vendor / "other.usfda"
    verified = verify(model, vendor / "vendor.pub")
    read_model_file(model, verified)
    procure(*blobs([2, 3], 8, d=6), method="mixture").save(other)
    other.replace(model)
    with pytest.raises(InputError, match="exchanged"):
        read_model_file(model, verified)


def test_nobody_exchanges_a_file_in_between(vendor: Path) -> None:
    """Somebody does, all the time: what is loaded is the signed model, or nothing."""
    model, done = vendor / "vendor.usfda", Event()
    procure(*blobs([2, 3], 8, d=6), method="mixture").save(vendor / "b.usfda")
    shutil.copy(model, vendor / "a.usfda")

    def exchange() -> None:
        while not done.is_set():
            for name in ("b.usfda", "a.usfda"):
                shutil.copy(vendor / name, vendor / "next")
                (vendor / "next").replace(model)

    thread = Thread(target=exchange)
    thread.start()
    try:
        for _ in range(60):
            with suppress(InputError):
                assert load(model, signed_by=vendor / "vendor.pub").classes_ == ["c0", "c1"]
    finally:
        done.set()
        thread.join()


# Certificates


def certificate(name: str, key: PrivateKey, issuer: str, by: PrivateKey, ca: bool, signs: bool = True) -> bytes:
    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

    others = "content_commitment key_encipherment data_encipherment key_agreement encipher_only decipher_only"
    usage = dict.fromkeys(others.split(), False)
    made = (
        x509.CertificateBuilder()
        .subject_name(named(name))
        .issuer_name(named(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(START)
        .not_valid_after(START + datetime.timedelta(days=36500))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(signs, key_cert_sign=ca, crl_sign=ca, **usage), critical=True)
        .sign(by, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM)


@pytest.fixture
def authority(vendor: Path) -> Path:
    """The vendor's folder with a root, one between, and the vendor's certificates."""
    root, between = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    middle = certificate("between", between, "root", root, ca=True)
    (vendor / "root.pem").write_bytes(certificate("root", root, "root", root, ca=True))
    (vendor / "vendor.pem").write_bytes(certificate("vendor", KEY, "between", between, ca=False) + middle)
    (vendor / "alone.pem").write_bytes(certificate("vendor", KEY, "between", between, ca=False))
    (vendor / "direct.pem").write_bytes(certificate("vendor", KEY, "root", root, ca=False))
    (vendor / "no-use.pem").write_bytes(certificate("vendor", KEY, "root", root, ca=False, signs=False))
    friend = ec.generate_private_key(ec.SECP256R1())
    write_private(vendor / "friend.key", friend)
    by_vendor = certificate("friend", friend, "vendor", KEY, ca=False)  # who is no authority
    (vendor / "friend.pem").write_bytes(by_vendor + (vendor / "direct.pem").read_bytes())
    return vendor


def test_certificates(run: Run, authority: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = authority / "vendor.usfda"
    write_private(authority / "vendor.key", KEY, SECRET)  # which the library itself cannot read here
    monkeypatch.setenv("USFDA_KEY_PASSWORD", "sesame")
    for name in ("vendor.pem", "direct.pem"):
        code, _, error = run("sign", model, "--key", authority / "vendor.key", "--certificate", authority / name)
        assert code == 0, error
        assert verify(model, authority / "root.pem") == hashlib.sha256(model.read_bytes()).hexdigest()
    with pytest.raises(InputError, match="certificate"):
        sign(model, authority / "vendor.key", certificate=authority / "friend.pem", password="sesame")
    with pytest.raises(InputError, match="certificate"):
        sign(model, authority / "vendor.key", certificate=authority / "vendor.pub", password="sesame")


def test_certificates_that_do_not_vouch(authority: Path) -> None:
    model = authority / "vendor.usfda"
    other = ec.generate_private_key(ec.SECP256R1())
    (authority / "other-root.pem").write_bytes(certificate("root", other, "root", other, ca=True))
    sign(model, authority / "vendor.key", certificate=authority / "vendor.pem")
    verify(model, authority / "root.pem")
    assert "other-root.pem" in refusal(authority, "other-root.pem")
    refusal(authority, "vendor.pub")  # a signature by certificate names no key
    for name in ("alone.pem", "no-use.pem", "friend.pem"):
        key = authority / ("friend.key" if name == "friend.pem" else "vendor.key")
        sign(model, key, certificate=authority / name)
        assert "root.pem" in refusal(authority, "root.pem"), name
    sign(model, authority / "vendor.key")
    refusal(authority, "root.pem")  # nor does one by key bring a certificate
    sign(model, authority / "vendor.key", certificate=authority / "vendor.pem")
    broken = json.loads((authority / "vendor.usfda.sig").read_bytes())
    for chain in ([], [{"rawBytes": ""}], [{"rawBytes": base64.b64encode(b"0" * 100).decode()}]):
        broken["verificationMaterial"]["x509CertificateChain"]["certificates"] = chain
        (authority / "vendor.usfda.sig").write_text(json.dumps(broken))
        refusal(authority, "root.pem")


# Beyond


def test_the_service(run: Run, vendor: Path, tmp_path: Path) -> None:
    model = tmp_path / "images.usfda"
    procure(write_photos(tmp_path / "photos", [0, 1], 6), method="mixture", backbone="pixels").save(model)
    call = ("serve", model, "--data", tmp_path / "data", "--port", 0, "--require-signature", vendor / "vendor.pub")
    code, _, error = run(*call)
    assert code == 2
    assert "signed" in error
    assert list((tmp_path / "data").rglob("*.usfda")) == []
    sign(model, vendor / "vendor.key")
    config = Config(threads=1, cache=None)
    service = Service(model, tmp_path / "data", config, Limits(), vendor / "vendor.pub")
    try:
        assert service.models.current.entry.sha256 == hashlib.sha256(model.read_bytes()).hexdigest()
    finally:
        service.close()


def test_the_librarys_own_command(vendor: Path) -> None:
    """It takes our signatures, and we take its."""
    command = [sys.executable, "-m", "model_signing"]
    check = ["verify", "key", "vendor.usfda", "--signature", "vendor.usfda.sig", "--public_key", "vendor.pub"]
    subprocess.run([*command, *check], cwd=vendor, check=True, capture_output=True)
    (vendor / "vendor.usfda.sig").unlink()
    make = ["sign", "key", "vendor.usfda", "--signature", "vendor.usfda.sig", "--private_key", "vendor.key"]
    subprocess.run([*command, *make], cwd=vendor, check=True, capture_output=True)
    verify(vendor / "vendor.usfda", vendor / "vendor.pub")


def test_nothing_is_asked_of_the_network(vendor: Path) -> None:
    script = """
import sys

def refuse(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname"):
        print(event, arguments)
        raise SystemExit(9)

sys.addaudithook(refuse)
from usfda.signing import sign, verify

sign("vendor.usfda", "vendor.key")
print(verify("vendor.usfda", "vendor.pub"))
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=vendor, capture_output=True, text=True, check=True)
    assert done.stdout == hashlib.sha256((vendor / "vendor.usfda").read_bytes()).hexdigest() + "\n"


def test_without_the_library(run: Run, vendor: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "model_signing", None)  # as if it were not installed
    for command in ("sign", "verify"):
        code, _, error = run(command, vendor / "vendor.usfda", "--key", vendor / "vendor.pub")
        assert code == 2
        assert "usfda[sign]" in error
    assert load(vendor / "vendor.usfda").classes_ == ["c0", "c1"]


def follow(lines: Iterable[str], run: Run) -> str:
    """Do what lines of a page say, ours in this process; all that ours wrote to stdout."""
    shown = ""
    for line in lines:
        if line.startswith("usfda "):
            code, out, error = run(*shlex.split(line)[1:])
            assert code == 0, f"{line}: {error}"
            shown += out
        else:
            subprocess.run(["bash", "-ec", line], check=True, capture_output=True)
    return shown


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_the_lines_of_the_help(run: Run, vendor: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(vendor)
    for name in ("vendor.key", "vendor.pub", "vendor.usfda.sig"):
        Path(name).unlink()
    lines = [line.strip() for line in run("sign", "--help")[1].splitlines() if line.strip().startswith("openssl")]
    assert len(lines) == 2
    follow([*lines, "usfda sign vendor.usfda --key vendor.key", "usfda verify vendor.usfda --key vendor.pub"], run)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_the_lines_of_the_page(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("USFDA_KEY_PASSWORD", "sesame")
    procure(write_photos(Path("new-photos"), [0, 1], 6), method="mixture", backbone="pixels").save("vendor.usfda")
    lines = "".join(re.findall(r"```sh\n(.*?)```", (DOCS / "signing.md").read_text(), re.DOTALL))
    shown = follow(lines.splitlines(), run)
    assert shown.count(": signed with") == lines.count("usfda verify") == 2
    assert Path("client.usfda").is_file()
