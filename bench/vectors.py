"""The sets of vectors that benchmarks search: real ones from disk, uniform ones from a seed."""

import dataclasses
import gzip
import lzma
import os
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
        unfinished = cached.with_suffix(f".{os.getpid()}")
        unfinished.write_bytes(lzma.open(packed).read())
        unfinished.replace(cached)
    return cached


def file_of(name):
    """The base of a set that needs no --data, of bytes, as a file that programs read."""
    path = pathlib.Path(tempfile.gettempdir()) / "gigaknn-bench" / f"{name}.u8bin"
    if not path.exists():
        base = load(name, None).base
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}")
        unfinished.write_bytes(np.array(base.shape, np.uint32).tobytes() + base.tobytes())
        unfinished.replace(path)
    return path


def clusters(n, d, latent=16, centres=1000, seed=1):
    """u8 rows near a `latent`-dimensional subspace, in clusters that overlap. Row i is the same whatever n."""
    generator = np.random.default_rng([seed, 0])
    directions = generator.standard_normal((latent, d), np.float32) / np.sqrt(np.float32(latent))
    centre = generator.standard_normal((centres, latent), np.float32)
    rows = np.empty((n, d), np.uint8)
    block = 65536
    for begin in range(0, n, block):
        generator = np.random.default_rng([seed, 1, begin // block])
        at = centre[generator.integers(0, centres, block)] + 0.5 * generator.standard_normal((block, latent), np.float32)
        values = 128 + 40 * (at @ directions) + 2 * generator.standard_normal((block, d), np.float32)
        rows[begin:begin + block] = np.clip(np.rint(values), 0, 255).astype(np.uint8)[:n - begin]
    return rows


def load(name, data):
    """`name`: fashion, sift, glove, bigann10k, covtype, uniform-<n>x<d>, clusters-<n>x<d>; or shuffled-, sorted- or sentinels-<n>x<d>: the same rows, of all
    norms, in no order, by norm, and in no order with one in a thousand at -999999."""
    if name.startswith("clusters-"):
        n, d = map(int, name.removeprefix("clusters-").split("x"))
        base = clusters(n, d)
        return Vectors(name, base, base[:1000])
    if name.startswith("uniform-"):
        n, d = map(int, name.removeprefix("uniform-").split("x"))
        generator = np.random.default_rng(1)
        return Vectors(name, generator.random((n, d), np.float32), generator.random((1000, d), np.float32))
    if name.startswith(("shuffled-", "sorted-", "sentinels-")):
        order, size = name.split("-")
        n, d = map(int, size.split("x"))
        generator = np.random.default_rng(1)
        base = (generator.standard_normal((n, d)) * np.arange(n)[:, None] / n).astype(np.float32)
        queries = base[generator.integers(0, n, 2000)] + 0.01 * generator.standard_normal((2000, d), np.float32)
        if order != "sorted":
            base = base[generator.permutation(n)]
        if order == "sentinels":
            base[:: 1000] = -999999
        return Vectors(name, base, queries)
    if name == "fashion":
        if not FASHION.exists():
            raise Missing(f"{FASHION} (apt-get install dataset-fashion-mnist)")
        return Vectors(name, *(read_images(FASHION / f"{part}-images-idx3-ubyte.gz") for part in ("train", "t10k")))
    folder, extension = FOLDERS[name]
    base, queries = (read_bin(find(data, folder, f"{part}.{extension}"), DTYPES[extension])
                     for part in ("base", "query"))
    return Vectors(name, base, queries)
