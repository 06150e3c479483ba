"""Files of every format, places that hold nothing else, and a server that misbehaves."""

import gzip
import hashlib
import http.server
import io
import struct
import tarfile
import threading
import zipfile
from contextlib import contextmanager

import numpy as np
import requests
from PIL import Image

from bilevax.paper.data import File, _idx, _places

SEND = requests.Session.send


def alone(tmp_path, monkeypatch):
    """No place but an empty cache, which is given back, and no network."""
    monkeypatch.delenv("BILEVAX_DATA", raising=False)
    monkeypatch.setattr(_places, "cache", lambda: tmp_path / "cache")
    monkeypatch.setattr(requests.Session, "send", local_only)
    return tmp_path / "cache"


def local_only(self, request, **settings):
    if not request.url.startswith("http://127.0.0.1:"):
        raise requests.ConnectionError("no network in tests")
    return SEND(self, request, **settings)


def idx(array, magic=None, shape=None):
    magic = bytes([0, 0, 8, array.ndim]) if magic is None else magic
    return magic + struct.pack(f">{array.ndim}I", *(shape or array.shape)) + array.tobytes()


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def idx_set(folder, label=7):
    for name, shape in _idx.SHAPES.items():
        array = np.full(shape, label if len(shape) == 1 else 0, np.uint8)
        write(folder / name, gzip.compress(idx(array), 1))
    return folder


def npz(path, **arrays):
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **arrays)
    return path


def subset(letter, x, classes=10):
    y = np.arange(len(x)) % classes
    return {f"{letter}_train": x, "y_train": y, f"{letter}_test": x, "y_test": y}


def tar(path, *members):
    """Members are (name, content), or (TarInfo, content)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name, content in members:
            info = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def png(value=255, size=(105, 105)):
    out = io.BytesIO()
    Image.new("L", size, value).convert("1").save(out, "PNG")
    return out.getvalue()


def zipped(path, entries):
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return path


BODY = bytes(range(256)) * 2000
SHA256 = hashlib.sha256(BODY).hexdigest()


class Server(http.server.ThreadingHTTPServer):
    """Serves `body`; breaks off the first `drops` answers half way."""

    daemon_threads = True
    body, drops, ranges = BODY, 0, True

    def handle_error(self, request, client_address):
        pass


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        server, asked = self.server, self.headers.get("Range")
        server.asked.append(asked)
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and server.ranges else 0
        if start and start >= len(server.body):
            self.send_error(416)
            return
        rest = server.body[start:]
        self.send_response(206 if start else 200)
        if start:
            end = len(server.body)
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{end}")
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        if server.drops:
            server.drops -= 1
            rest = rest[: len(rest) // 2]
        self.wfile.write(rest)

    def log_message(self, *args):
        pass


@contextmanager
def serving():
    server = Server(("127.0.0.1", 0), Handler)
    server.asked = []
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def file_at(server, sha256=SHA256, size=len(BODY)):
    return File("a.bin", f"http://127.0.0.1:{server.server_port}/a.bin", sha256, size)
