"""What the scripts of the gallery share: where pictures go, and data that any machine has."""

import argparse
import ast
import gzip
import io
import os
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import numpy as np
from PIL import Image

FASHION = Path("/usr/share/datasets/fashion-mnist")
CLASSES = ["T-shirt", "trousers", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot"]


def arguments(description):
    """`.small`: data that are here on any machine; `.out`: the folder of the picture."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--small", action="store_true", help="small data, that is on any machine")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder of the picture")
    return parser.parse_args()


def save(figure, arguments, name):
    arguments.out.mkdir(parents=True, exist_ok=True)
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=80)
    Image.open(drawn).convert("RGB").quantize(256).save(arguments.out / f"{name}.png", optimize=True)  # fewer bytes
    print(f"{arguments.out / name}.png")


def images(small, rows):
    """(images [n, d] uint8, labels [n], the shape of one, names of the labels): Fashion-MNIST, or the digits of scikit-learn."""
    if small or not FASHION.exists():
        from sklearn.datasets import load_digits

        digits = load_digits()
        return digits.data.astype(np.uint8), digits.target, (8, 8), [str(i) for i in range(10)]
    with gzip.open(FASHION / "train-images-idx3-ubyte.gz") as file:
        x = np.frombuffer(file.read()[16:], np.uint8).reshape(-1, 784)
    with gzip.open(FASHION / "train-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read()[8:], np.uint8)
    return x[:rows], labels[:rows], (28, 28), CLASSES


def docstrings(small):
    """(texts, names): the documents of what Python's standard library defines."""
    texts, names = [], []
    root = Path(os.__file__).parent
    folders = ["."] if small else [".", "asyncio", "concurrent/futures", "email", "http", "importlib", "json", "logging", "multiprocessing", "unittest", "xml/dom", "xml/sax"]
    for path in sorted(path for folder in folders for path in (root / folder).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(errors="replace"))):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                text = ast.get_docstring(node)
                if text and len(text) >= 60:
                    texts.append(" ".join(text.split()))
                    names.append(f"{path.relative_to(root).with_suffix('')}:{getattr(node, 'name', 'module')}".replace("/", "."))
    return texts, names
