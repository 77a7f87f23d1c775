"""The sets of vectors that bench/exact.py searches: real ones from disk, uniform ones from a seed."""

import dataclasses
import gzip
import lzma
import pathlib
import tempfile

import numpy as np

FASHION = pathlib.Path("/usr/share/datasets/fashion-mnist")
COMPRESSED = pathlib.Path(__file__).resolve().parents[2] / "shared" / "data"
DTYPES = {"u8bin": np.uint8, "i8bin": np.int8, "hbin": np.float16, "fbin": np.float32}
FOLDERS = {
    "sift": ("sift-debian-200k", "u8bin"),
    "glove": ("glove-100-200k", "hbin"),
    "bigann10k": ("bigann10k-128", "u8bin"),
    "covtype": ("covtype-54", "fbin"),
}


class Missing(Exception):
    """The set is not on this machine; the message says what was looked for."""


@dataclasses.dataclass
class Vectors:
    name: str
    base: np.ndarray  # [n, d], contiguous, as stored
    queries: np.ndarray  # [q, d]


def read_bin(path, dtype):
    rows, cols = np.fromfile(path, np.uint32, 2)
    return np.fromfile(path, dtype, offset=8).reshape(rows, cols)


def read_images(path):
    with gzip.open(path) as file:
        header = np.frombuffer(file.read(16), ">u4")
        return np.frombuffer(file.read(), np.uint8).reshape(header[1], -1).copy()


def find(data, folder, name):
    """The file under `data`, else the one in shared/data, unpacked once into the temporary directory."""
    path = pathlib.Path(data) / folder / name
    if path.exists():
        return path
    packed = COMPRESSED / folder / f"{name}.xz"
    cached = pathlib.Path(tempfile.gettempdir()) / "gigaknn-bench" / folder / name
    if not cached.exists():
        if not packed.exists():
            raise Missing(f"neither {path} nor {packed}")
        cached.parent.mkdir(parents=True, exist_ok=True)
        partial = cached.with_suffix(".partial")
        partial.write_bytes(lzma.open(packed).read())
        partial.rename(cached)
    return cached


def load(name, data):
    """`name`: fashion, sift, glove, bigann10k, covtype, or uniform-<n>x<d>."""
    if name.startswith("uniform-"):
        n, d = map(int, name.removeprefix("uniform-").split("x"))
        generator = np.random.default_rng(1)
        return Vectors(name, generator.random((n, d), np.float32), generator.random((1000, d), np.float32))
    if name == "fashion":
        if not FASHION.exists():
            raise Missing(f"{FASHION} (apt-get install dataset-fashion-mnist)")
        return Vectors(name, *(read_images(FASHION / f"{part}-images-idx3-ubyte.gz") for part in ("train", "t10k")))
    folder, extension = FOLDERS[name]
    base, queries = (read_bin(find(data, folder, f"{part}.{extension}"), DTYPES[extension])
                     for part in ("base", "query"))
    return Vectors(name, base, queries)
