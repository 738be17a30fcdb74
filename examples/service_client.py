"""Talk to a running service with Python's standard library alone: send images, adapt to them, accept the result.

    usfda serve examples-out/vendor.usfda &
    python examples/service_client.py http://127.0.0.1:8000 examples-out/uci/?/*[05].png

Where the service wants a token, it is read from USFDA_TOKEN.
"""

import json
import os
import sys
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen


def call(address: str, method: str = "GET", body: bytes | None = None, kind: str = "") -> dict[str, Any]:
    """What the service answers; an answer that is an error raises urllib.error.HTTPError."""
    headers = {"Content-Type": kind} if kind else {}
    if token := os.environ.get("USFDA_TOKEN"):
        headers["Authorization"] = f"Bearer {token}"
    with urlopen(Request(address, body, headers, method=method)) as answer:
        return dict(json.load(answer))


def predict(server: str, files: list[Path]) -> list[dict[str, Any]]:
    """A record for each image, in their order; at most 256 images fit into one request."""
    boundary = uuid.uuid4().hex  # a line that occurs in no image separates the files of a multipart message
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="files"; filename="{{}}"\r\n\r\n'
    parts = [head.format(file.name).encode() + file.read_bytes() + b"\r\n" for file in files]
    body = b"".join(parts) + f"--{boundary}--\r\n".encode()
    return list(call(f"{server}/predict", "POST", body, f"multipart/form-data; boundary={boundary}")["results"])


def labels(server: str, files: list[Path]) -> dict[str, int]:
    """How many images have which label."""
    return dict(sorted(Counter(record.get("label", "cannot be read") for record in predict(server, files)).items()))


def main(server: str, files: list[Path]) -> None:
    """Predict, adapt, accept, predict again."""
    server = server.rstrip("/")
    print("before:", labels(server, files))  # the service keeps what it is sent, to adapt to it

    call(f"{server}/adapt", "POST")  # returns at once; the service goes on answering meanwhile
    while (found := call(f"{server}/adapt"))["state"] == "running":
        time.sleep(0.2)
    if found["state"] != "ready":
        sys.exit(f"the adaptation is {found['state']}: {found}")
    for sentence in found["findings"]["sentences"]:
        print(sentence)

    # A person would look at the page first, and may discard the result: POST /adapt/discard.
    call(f"{server}/adapt/accept", "POST")
    print("after:", labels(server, files))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(f"usage: python {sys.argv[0]} ADDRESS IMAGE...")
    try:
        main(sys.argv[1], [Path(name) for name in sys.argv[2:]])
    except HTTPError as error:  # the service says what is wrong; something else at this address may not
        said = error.headers.get_content_type() == "application/json" and json.load(error).get("detail")
        hint = "; set USFDA_TOKEN to the token of the service" if error.code == 401 else ""
        sys.exit(f"{error.url}: {said or error}{hint}")
    except OSError as error:  # no service there, or no such file
        sys.exit(str(error))
