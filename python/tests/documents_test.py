"""The examples in docstrings and in docs/python.md, and that everything public has a document."""

import doctest
import importlib
import inspect
import pkgutil
import unittest
from pathlib import Path

import gigaknn

root = Path(__file__).resolve().parents[2]


def modules():
    for module in pkgutil.walk_packages(gigaknn.__path__, "gigaknn."):
        if module.name not in ("gigaknn._core", "gigaknn.sklearn", "gigaknn.__main__"):
            yield importlib.import_module(module.name)
    yield gigaknn


class Documents(unittest.TestCase):
    def test_examples_of_docstrings(self):
        tried = 0
        for module in modules():
            with self.subTest(module.__name__):
                result = doctest.testmod(module, verbose=False)
                self.assertEqual(result.failed, 0)
                tried += result.attempted
        self.assertGreater(tried, 50)

    def test_examples_of_the_documents(self):
        for name in ("docs/python.md", "README.md"):
            text = (root / name).read_text()
            blocks = [block.partition("```")[0] for block in text.split("```python\n")[1:]]
            self.assertTrue(blocks, name)
            names = {}
            for block in blocks:
                test = doctest.DocTestParser().get_doctest(block, names, name, name, 0)
                if test.examples:
                    result = doctest.DocTestRunner(verbose=False).run(test, clear_globs=False)
                    self.assertEqual(result.failed, 0, name)
                    names.update(test.globs)

    def test_everything_public_has_a_document(self):
        for name in gigaknn.__all__:
            thing = getattr(gigaknn, name)
            self.assertTrue(hasattr(gigaknn, name) and inspect.getdoc(thing), name)
            if inspect.isclass(thing):
                for member, value in vars(thing).items():
                    if not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, (classmethod, staticmethod))):
                        self.assertTrue(inspect.getdoc(getattr(thing, member)), f"{name}.{member}")

    def test_functions_say_what_they_return(self):
        for function in (gigaknn.knn, gigaknn.knn_graph, gigaknn.radius_search, gigaknn.radius_graph, gigaknn.build, gigaknn.open, gigaknn.kmeans, gigaknn.recall, gigaknn.duplicates, gigaknn.to_device):
            self.assertIn("\nReturns\n-------\n", inspect.getdoc(function), function.__name__)

    def test_type_checkers_find_types(self):
        folder = Path(gigaknn.__file__).parent
        self.assertTrue((folder / "py.typed").is_file())
        self.assertIn("class KnnGraph", (folder / "_core.pyi").read_text())


if __name__ == "__main__":
    unittest.main()
