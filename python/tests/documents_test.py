"""The examples in docstrings and in docs/python.md, and that everything public has a document."""

import doctest
import importlib
import importlib.util
import inspect
import os
import pkgutil
import re
import tempfile
import unittest
import warnings
from pathlib import Path

import gigaknn
import numpy as np

root = Path(__file__).resolve().parents[2]
os.environ["MPLBACKEND"] = "agg"

# Examples that need another library, and code blocks of docs/python.md that name one.
_needs = {"gigaknn.sklearn": "sklearn", "gigaknn.plot": "matplotlib", "gigaknn._graph.KnnGraph.to_csr": "scipy"}
_named = {"sklearn": "sklearn", "scanpy": "scanpy", "umap": "umap", "openTSNE": "openTSNE", "to_csr": "scipy", "plot": "matplotlib"}


def is_there(library):
    return importlib.util.find_spec(library) is not None


def modules():
    for module in pkgutil.walk_packages(gigaknn.__path__, "gigaknn."):
        if module.name not in ("gigaknn._core", "gigaknn.__main__") and is_there(_needs.get(module.name, "numpy")):
            yield importlib.import_module(module.name)
    yield gigaknn


def code_blocks(name):
    return [block.partition("```")[0] for block in (root / name).read_text().split("```python\n")[1:]]


def public():
    """(name, function, what its class calls it) of everything that users call."""
    for module, names in ((gigaknn, gigaknn.__all__), *((gigaknn.plot, gigaknn.plot.__all__) for _ in range(is_there("matplotlib")))):
        for name in names:
            thing = getattr(module, name)
            if not inspect.isclass(thing):
                yield name, thing
                continue
            for member, value in vars(thing).items():
                if not member.startswith("_") and (isinstance(value, (classmethod, staticmethod)) or (callable(value) and not inspect.isclass(value))):
                    yield f"{name}.{member}", getattr(thing, member)


def signature_of(function):
    """(names of parameters, whether it returns something), of functions of the module as their documents begin."""
    if not inspect.isfunction(inspect.unwrap(getattr(function, "__func__", function))):  # of which Python 3.13 says (*args, **kwargs), others nothing
        first = inspect.getdoc(function).splitlines()[0]
        inside, _, result = first.partition("(")[2].rpartition(" -> ")
        return [name for name in re.findall(r"(\w+)(?=:)", inside)], result not in ("", "None")
    signature = inspect.signature(function)
    names = [name for name in signature.parameters if name not in ("self", "cls")]
    return names, signature.return_annotation not in (None, "None")


class Documents(unittest.TestCase):
    def test_examples_of_docstrings(self):
        tried = 0
        for module in modules():
            with self.subTest(module.__name__):
                for test in doctest.DocTestFinder(exclude_empty=True).find(module):
                    if is_there(_needs.get(test.name, "numpy")):
                        result = doctest.DocTestRunner(verbose=False).run(test)
                        self.assertEqual(result.failed, 0, test.name)
                        tried += result.attempted
        self.assertGreater(tried, 120)

    def test_examples_of_the_documents(self):
        for name in ("docs/python.md", "README.md"):
            blocks = code_blocks(name)
            self.assertTrue(blocks, name)
            names = {}
            for block in blocks:
                test = doctest.DocTestParser().get_doctest(block, names, name, name, 0)
                if test.examples:
                    result = doctest.DocTestRunner(verbose=False).run(test, clear_globs=False)
                    self.assertEqual(result.failed, 0, name)
                    names.update(test.globs)

    def test_code_of_the_document_runs(self):
        """Blocks without prompts, in order, each after those before it, but for those that need a library that is not there."""
        random = np.random.default_rng(0)
        x = random.random((4000, 16), dtype=np.float32)
        lists, codes = gigaknn.build(x, index="IVF32,Flat"), gigaknn.build(x, index="IVF32,PQ8,RFlat")
        for index in (lists, codes):
            index.measure(x[:100], seconds=1)
        names = {"gigaknn": gigaknn, "x": x, "queries": x[:50], "true_queries": random.random((100, 16), dtype=np.float32), "lists": lists, "codes": codes}
        names.update(more=x[:20], rows=x[20:22], ids=[3, 4], some_ids=np.arange(100), other=gigaknn.knn_graph(x[:100], 15), images=random.random((4000, 784), dtype=np.float32))
        names.update(d=16, xb=x, xq=x[:50], some=np.arange(100))
        ran, folder = 0, os.getcwd()
        with tempfile.TemporaryDirectory() as scratch, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            os.chdir(scratch)
            try:
                for block in code_blocks("docs/python.md"):
                    code = re.sub(r"#.*", "", block)
                    if ">>>" not in code and all(is_there(library) for word, library in _named.items() if re.search(rf"\b{word}\b", code)):
                        exec(compile(code, "docs/python.md", "exec"), names)
                        ran += 1
            finally:
                os.chdir(folder)
        self.assertGreaterEqual(ran, 3)

    def test_everything_public_has_a_document(self):
        for name in gigaknn.__all__:
            self.assertTrue(inspect.getdoc(getattr(gigaknn, name)), name)
        for name, function in public():
            self.assertTrue(inspect.getdoc(function), name)

    def test_functions_say_what_they_take_and_return(self):
        for name, function in public():
            with self.subTest(name):
                text, (parameters, returns) = inspect.getdoc(function), signature_of(function)
                if parameters:
                    section = text.partition("\nParameters\n----------\n")[2].partition("\n\n")[0]
                    told = re.findall(r"\w+", " ".join(line.partition(" : ")[0] for line in section.splitlines() if not line.startswith(" ")))
                    self.assertEqual([parameter for parameter in parameters if parameter not in told], [])
                if returns:
                    self.assertIn("\nReturns\n-------\n", text)

    def test_type_checkers_find_types(self):
        folder = Path(gigaknn.__file__).parent
        self.assertTrue((folder / "py.typed").is_file())
        self.assertIn("class KnnGraph", (folder / "_core.pyi").read_text())


if __name__ == "__main__":
    unittest.main()
