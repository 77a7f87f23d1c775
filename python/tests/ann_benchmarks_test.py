"""The wrapper for ann-benchmarks (bench/ann_benchmarks), by a loop of that harness's shape on a small file of its layout."""

import importlib
import itertools
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

import gigaknn
import numpy as np
from support import clustered_rows

try:
    import h5py
    import yaml
except ImportError:
    h5py = None

wrapper = Path(__file__).resolve().parents[2] / "bench" / "ann_benchmarks" / "gigaknn"

BASE = """
class BaseANN:
    def done(self): pass
    def fit(self, X): pass
    def query(self, q, n): return []
    def batch_query(self, X, n): raise AssertionError("the wrapper has its own")
    def get_batch_results(self): raise AssertionError("the wrapper has its own")
    def get_additional(self): return {}
    def __str__(self): return self.name
"""


def combinations(arguments):
    return list(itertools.product(*(argument if isinstance(argument, list) else [argument] for argument in arguments)))


@unittest.skipUnless(h5py, "no h5py or PyYAML")
class AnnBenchmarks(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        algorithms = self.folder / "ann_benchmarks" / "algorithms"
        (algorithms / "base").mkdir(parents=True)
        (algorithms / "base" / "module.py").write_text(BASE)
        shutil.copytree(wrapper, algorithms / "gigaknn")
        sys.path.insert(0, folder.name)
        self.addCleanup(sys.path.remove, folder.name)
        self.addCleanup(lambda: [sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == "ann_benchmarks"])
        importlib.invalidate_caches()
        self.config = yaml.safe_load((wrapper / "config.yml").read_text())

    def write(self, distance, train, test, found):
        path = self.folder / f"{distance}.hdf5"
        with h5py.File(path, "w") as file:
            file.attrs.update({"type": "dense", "distance": distance, "dimension": train.shape[1], "point_type": "bit" if train.dtype == bool else "float"})
            for name, values in (("train", train), ("test", test), ("neighbors", found.ids), ("distances", found.distances)):
                file[name] = values
        return path

    def recalls(self, path, definitions, count=10):
        """The recall of each run: {name of the group: {name of the run: recall}}, by distance as the harness has it."""
        result = {}
        with h5py.File(path) as file:
            metric, train, test, truth = file.attrs["distance"], file["train"][:], file["test"][:], file["distances"][:, :count]
        for definition in definitions:
            module = importlib.import_module(f"{definition['module']}.module")
            for group, run in definition["run_groups"].items():
                for arguments in combinations(run["args"]):
                    base = [metric if argument == "@metric" else argument for argument in definition["base_args"]]
                    algorithm = getattr(module, definition["constructor"])(*base, *arguments)
                    algorithm.fit(train)
                    for query_arguments in combinations(run.get("query_args", [])):
                        if query_arguments:
                            algorithm.set_query_arguments(*query_arguments)
                        single = np.array([algorithm.query(v, count) for v in test])
                        algorithm.batch_query(test, count)
                        np.testing.assert_array_equal(algorithm.get_batch_results(), single)
                        result.setdefault(group, {})[str(algorithm)] = self.recall(metric, train, test, single, truth)
                    algorithm.done()
        return result

    @staticmethod
    def recall(metric, train, test, ids, truth):
        if metric == "angular":
            train, test = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (train, test))
            distances = 1 - np.einsum("qd,qkd->qk", test, train[ids])
        elif metric == "hamming":
            distances = (test[:, None] != train[ids]).sum(axis=2)
        else:
            distances = np.linalg.norm(test[:, None] - train[ids], axis=2)
        return float((distances <= truth[:, -1:] + 1e-3).mean())

    def test_vectors_and_codes(self):
        x = clustered_rows(3030, 32)
        train, test = x[:3000], x[3000:]
        for distance, metric in (("euclidean", "euclidean"), ("angular", "cosine")):
            path = self.write(distance, train, test, gigaknn.knn(test, train, 100, metric=metric))
            groups = self.recalls(path, self.config["float"]["any"])
            self.assertEqual(set(groups), {"vectors", "codes"})
            vectors = list(groups["vectors"].values())
            self.assertEqual(vectors, sorted(vectors))
            self.assertEqual((len(vectors), vectors[-1]), (9, 1))
            self.assertLess(vectors[0], 1)
            self.assertEqual(len(groups["codes"]), 54)
            self.assertGreater(groups["codes"]["gigaknn(IVF,SQ8,RFlat, nprobe=256, refine=4)"], 0.99)
            self.assertGreater(groups["codes"]["gigaknn(IVF,RaBitQ4,RFlat, nprobe=256, refine=16)"], 0.95)

    def test_bits(self):
        bits = np.random.default_rng(0).integers(2, size=(320, 64)).astype(bool)
        packed = np.packbits(bits, axis=1)
        path = self.write("hamming", bits[:300], bits[300:], gigaknn.knn(packed[300:], packed[:300], 100, metric="hamming"))
        self.assertEqual(self.recalls(path, self.config["bit"]["hamming"]), {"exact": {"gigaknn(Flat)": 1}})

    def test_other_metrics_are_refused(self):
        module = importlib.import_module("ann_benchmarks.algorithms.gigaknn.module")
        with self.assertRaisesRegex(NotImplementedError, "no metric 'ip'"):
            module.GigaKNN("ip", "Flat")


if __name__ == "__main__":
    unittest.main()
