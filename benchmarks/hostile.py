"""Thousands of hostile or malformed requests: is there a 5xx, does memory grow, and does the service still answer?

    python benchmarks/hostile.py client.usfda

Broken multipart and HTTP, bombs and torn images, endless, huge and slow bodies, wrong tokens, odd paths and names; then
what schemathesis makes of the service's own description, where it is installed.
"""

from __future__ import annotations

import argparse
import io
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import zlib
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from PIL import Image

TOKEN = "token-of-the-benchmark"
AUTHORISED = f"Authorization: Bearer {TOKEN}"
SLOW = 50  # clients at a time that begin a request and do not end it


class Attacker:
    """Makes requests; ``statuses`` counts the answers, by status, or by how the connection ended."""

    def __init__(self, port: int, limit: int, seed: int = 0):
        self.port, self.limit, self.random = port, limit, random.Random(seed)
        self.statuses: Counter[str] = Counter()
        self.images = [_image(kind) for kind in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM")]
        self.bombs = _bombs()
        self.ways: list[Callable[[], None]] = [
            self.broken_multipart, self.torn_image, self.bomb, self.odd_name, self.wrong_token, self.odd_request,
            self.broken_http, self.huge_head, self.odd_json, self.bad_chunks, self.wrong_length, self.pipelined,
        ]  # fmt: skip
        self.rare: list[Callable[[], None]] = [self.slow_head, self.slow_body, self.endless, self.gone]
        self.slow: deque[socket.socket] = deque(maxlen=SLOW)  # connections that are left open

    def attack(self, number: int) -> None:
        """One request; the number decides of which kind."""
        ways = self.rare if number % 50 == 49 else self.ways
        ways[number // 50 % len(self.rare) if ways is self.rare else number % len(self.ways)]()

    def send(self, *batches: bytes, whole: bool = True) -> None:
        """A request, and the status of its answer."""
        with socket.create_connection(("127.0.0.1", self.port), 60) as raw:
            try:
                for batch in batches:
                    raw.sendall(batch)
                if not whole:
                    raw.shutdown(socket.SHUT_WR)  # or it would wait for what is missing
                answer = raw.recv(64)
            except OSError as error:
                self.statuses[type(error).__name__] += 1
                return
        found = re.match(rb"HTTP/1\.1 (\d{3})", answer)
        self.statuses[found[1].decode() if found else "closed"] += 1

    def request(self, line: str, body: bytes = b"", *headers: str, token: str = AUTHORISED) -> bytes:
        head = [f"{line} HTTP/1.1", "Host: localhost", "Connection: close", token, *headers]
        return "\r\n".join(filter(None, head)).encode("latin-1", "replace") + b"\r\n\r\n" + body

    def upload(self, body: bytes, boundary: bytes = b"b") -> None:
        kind = f"Content-Type: multipart/form-data; boundary={boundary.decode('latin-1')}"
        self.send(self.request("POST /predict", body, kind, f"Content-Length: {len(body)}"))

    def form(self, content: bytes, name: bytes = b"a.png") -> bytes:
        return (
            b'--b\r\nContent-Disposition: form-data; name="files"; filename="' + name + b'"\r\n\r\n' + content
        ) + b"\r\n--b--\r\n"

    def mutated(self, content: bytes) -> bytes:
        made = bytearray(content)
        for _ in range(self.random.randint(1, 20)):
            place = self.random.randrange(len(made))
            made[place] = self.random.randrange(256)
        return bytes(made[: self.random.randint(1, len(made))]) if self.random.random() < 0.5 else bytes(made)

    def broken_multipart(self) -> None:
        self.upload(self.mutated(self.form(self.random.choice(self.images))))

    def torn_image(self) -> None:
        self.upload(self.form(self.mutated(self.random.choice(self.images))))

    def bomb(self) -> None:
        self.upload(self.form(self.random.choice(self.bombs)))

    def odd_name(self) -> None:
        names = [b"../../etc/passwd", b"\0", b"a" * 5000, b"\xff\xfe", b"<script>alert(1)</script>", b"\x1b[31m", b""]
        self.upload(self.form(self.random.choice(self.images), self.random.choice(names)))

    def wrong_token(self) -> None:
        token = self.random.choice(["", "Authorization: Bearer wrong", "Authorization: \xff", "Authorization: Bearer"])
        line = self.random.choice(["POST /predict", "POST /adapt", "GET /model", "GET /metrics", "POST /teach"])
        body = b"x" * self.random.choice([0, 10, 10**6])
        self.send(self.request(line, body, f"Content-Length: {len(body)}", token=token))

    def odd_request(self) -> None:
        method = self.random.choice(["GET", "PUT", "DELETE", "TRACE", "OPTIONS", "CONNECT", "HEAD", "MADEUP", "POST"])
        path = self.random.choice([
            "/%00", "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//evil.example/", "/" + "a" * 5000, "/%ff%fe",
            "/kept/" + "0" * 64, "/kept/..%2f..%2fmodels", "/predict?keep=" + "1" * 1000, "/page.js/..", "*", "/model",
            "http://evil.example/model", "/docs", "/teach", "/adapt/accept", "/model/rollback", "/adapt/discard",
        ])  # fmt: skip
        extra = self.random.choice(["", "Origin: http://evil.example", "Upgrade: websocket\r\nConnection: Upgrade"])
        self.send(self.request(f"{method} {path}", b"", extra))

    def broken_http(self) -> None:
        junk = bytes(self.random.randrange(256) for _ in range(self.random.randint(1, 2000)))
        start = self.random.choice([b"", b"GET ", b"POST /predict HTTP/1.1\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"])
        self.send(start + junk + b"\r\n\r\n", whole=False)

    def huge_head(self) -> None:
        headers = [f"X-{i}: {'a' * self.random.choice([10, 1000])}" for i in range(self.random.choice([1, 100, 1000]))]
        self.send(self.request("GET /model", b"", f"X-Large: {'b' * self.random.choice([1, 20_000])}", *headers))

    def odd_json(self) -> None:
        body = self.random.choice([
            b"[" * 50_000, b'{"1":' * 20_000, b"{", b"null", b'{"1": "\\ud800"}', b'{"1": 1e999}', b"\xff\xfe\xfd",
            b'{"' + b"9" * 30_000 + b'": "a"}', b'{"1": "' + b"a" * 60_000 + b'"}', b'{"1": "\\u0000"}', b"NaN",
            b'{"1": "a", "1": "b"}', b'{"-1": "a"}', b"9" * 20_000,
        ])  # fmt: skip
        kind = self.random.choice(["application/json", "text/plain", "application/json; charset=utf-7"])
        self.send(self.request("POST /teach", body, f"Content-Type: {kind}", f"Content-Length: {len(body)}"))

    def bad_chunks(self) -> None:
        chunks = self.random.choice([
            b"zz\r\nabc\r\n0\r\n\r\n", b"-5\r\nabcde\r\n0\r\n\r\n", b"5\r\nabc\r\n0\r\n\r\n",
            b"FFFFFFFFFFFFFFFFFFFF\r\nabc", b"5;" + b"a" * 20_000 + b"\r\nabcde\r\n0\r\n\r\n", b"0\r\n\r\n",
            b"5\r\nabcde\r\n0\r\nX: " + b"a" * 20_000 + b"\r\n\r\n",
        ])  # fmt: skip
        kind = "Content-Type: multipart/form-data; boundary=b"
        self.send(self.request("POST /predict", chunks, kind, "Transfer-Encoding: chunked"), whole=False)

    def wrong_length(self) -> None:
        length = self.random.choice([
            "Content-Length: -1", "Content-Length: a", "Content-Length: 5\r\nContent-Length: 6", "Content-Length: ",
            "Content-Length: 5\r\nTransfer-Encoding: chunked", f"Content-Length: {10**30}", f"Content-Length: {10**12}",
            "Transfer-Encoding: gzip", "Content-Length: 0",
        ])  # fmt: skip
        kind = "Content-Type: multipart/form-data; boundary=b"
        self.send(self.request("POST /predict", b"0\r\n\r\n", kind, length), whole=False)

    def pipelined(self) -> None:
        one = self.request("GET /healthz").replace(b"Connection: close\r\n", b"")
        self.send(one * 50 + self.request("GET /healthz"))

    def slow_head(self) -> None:
        self.begin(b"GET /model HTTP/1.1\r\nHost: ")

    def slow_body(self) -> None:
        kind = "Content-Type: multipart/form-data; boundary=b"
        self.begin(self.request("POST /predict", b"--b\r\n", kind, "Content-Length: 99"))

    def begin(self, batch: bytes) -> None:
        raw = socket.create_connection(("127.0.0.1", self.port), 60)
        raw.sendall(batch)
        self.slow.append(raw)
        self.statuses["slow"] += 1

    def endless(self) -> None:
        head = self.request(
            "POST /predict", b"", "Content-Type: multipart/form-data; boundary=b", "Transfer-Encoding: chunked"
        )
        start = self.form(b"")[: -len(b"\r\n--b--\r\n")]
        chunk = b"100000\r\n" + b"x" * 2**20 + b"\r\n"
        self.send(head, b"%x\r\n%b\r\n" % (len(start), start), *[chunk] * (self.limit // 2**20 + 4))

    def close(self) -> None:
        """Let the slow ones go."""
        while self.slow:
            self.slow.pop().close()

    def gone(self) -> None:
        with socket.create_connection(("127.0.0.1", self.port), 60) as raw:
            raw.sendall(self.request("POST /predict", b"--b\r\n", "Content-Length: 100000"))
        self.statuses["left"] += 1


def _image(kind: str) -> bytes:
    Image.linear_gradient("L").resize((64, 64)).convert("RGB").save(made := io.BytesIO(), kind)
    return made.getvalue()


def _bombs() -> list[bytes]:
    """Images that claim, or are, far more than their file."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + name + data + zlib.crc32(name + data).to_bytes(4, "big")

    def png(side: int, *chunks: bytes) -> bytes:
        head = chunk(b"IHDR", side.to_bytes(4, "big") * 2 + bytes([8, 2, 0, 0, 0]))
        return b"\x89PNG\r\n\x1a\n" + head + b"".join(chunks) + chunk(b"IEND", b"")

    zeros = zlib.compress(bytes(50 * 2**20))
    gif = b"GIF89a\xff\xff\xff\xff\x80\0\0" + bytes(6) + b",\0\0\0\0\xff\xff\xff\xff\0\x08\x01\0\0;"
    bmp = bytearray(_image("BMP"))
    bmp[18:26] = (100_000).to_bytes(4, "little") * 2
    return [
        png(2**31 - 1, chunk(b"IDAT", zeros)), png(60_000, chunk(b"IDAT", zeros)), png(4000, chunk(b"IDAT", zeros)),
        png(16, chunk(b"zTXt", b"a\0\0" + zeros), chunk(b"IDAT", zeros)), png(16, chunk(b"iCCP", b"a\0\0" + zeros)),
        gif, bytes(bmp), b"P6 99999 99999 255\n", b"P1 9999999999 1\n", b"II*\0" + b"\xff" * 1000,
        b"MM\0*" + bytes(1000), b"RIFF\xff\xff\xff\xffWEBPVP8X" + b"\xff" * 100,
        b"\xff\xd8\xff\xc0\0\x11\x08\xff\xff\xff\xff\x03" + bytes(100),
    ]  # fmt: skip


def schemathesis(port: int, examples: int, phases: str = "examples,coverage,fuzzing") -> tuple[bool, str]:
    """Requests made of the service's own description; whether all answers are as described, and what it says."""
    program = Path(sys.executable).with_name("st")
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [
                str(program), "run", f"http://127.0.0.1:{port}/openapi.json", "--header", AUTHORISED,
                "--checks", "all", "--phases", phases, "--max-examples", str(examples), "--no-color",
                # Any bytes pass for an image in a description; and Starlette names the methods of one route alone.
                "--exclude-checks", "positive_data_acceptance,allow_header_conformance",
            ],
            capture_output=True, text=True, check=False, cwd=folder,
        )  # fmt: skip
    return done.returncode == 0, done.stdout + done.stderr


def memory(process: int) -> float:
    """MiB that a process holds in memory."""
    text = Path(f"/proc/{process}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024  # type: ignore[index]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--requests", type=int, default=10_000)
    options = parser.parse_args()
    command = [sys.executable, "-m", "usfda", "serve", str(options.model), "--port", "0", "--token", TOKEN]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        found = re.search(r":(\d+);", process.stderr.readline())
        assert found
        from usfda.service.limits import Limits

        attacker = Attacker(int(found[1]), Limits().body)
        print(f"at first: {memory(process.pid):.0f} MiB")
        sizes = []
        for batch in range(5):
            with ThreadPoolExecutor(8) as pool:
                numbers = range(batch * options.requests // 5, (batch + 1) * options.requests // 5)
                list(pool.map(attacker.attack, numbers))
            sizes.append(memory(process.pid))
            print(f"after {numbers.stop} requests: {sizes[-1]:.0f} MiB")
        print("answers:", dict(attacker.statuses.most_common()))
        if shutil.which("st", path=str(Path(sys.executable).parent)):
            fine, said = schemathesis(attacker.port, options.requests // 50)
            print(*[line for line in said.splitlines() if "generated" in line or "❌" in line], sep="\n")
            print(f"schemathesis: {'no fault' if fine else said}; {memory(process.pid):.0f} MiB")
        attacker.send(attacker.request("GET /metrics"))
        assert attacker.statuses["200"], "it answers no more"
        attacker.close()
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait()
    bad = sum(count for status, count in attacker.statuses.items() if status.startswith("5"))
    print(f"exit code {code}; answers of 5xx: {bad}; memory after the first fifth: {sizes[-1] / sizes[0]:.2f} ×")
    print(process.stderr.read())


if __name__ == "__main__":
    main()
