"""Tests check_layers.py on small trees made for each case."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import check_layers


class CheckLayers(unittest.TestCase):
    def faults(self, files):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return check_layers.check(folder)

    def assert_sound(self, files):
        self.assertEqual(self.faults(files), [])

    def assert_fault(self, files, *words):
        faults = self.faults(files)
        self.assertEqual(len(faults), 1, faults)
        for word in words:
            self.assertIn(word, faults[0])

    def test_the_left_and_the_own_folder_may_be_included(self):
        self.assert_sound({
            "include/gigaknn/ids.hpp": "#include <cstdint>\n",
            "src/core/half.hpp": "#include <gigaknn/ids.hpp>\n",
            "src/io/npy.cpp": '#include "io/npy.hpp"\n#include "core/half.hpp"\n#include <zlib.h>\n',
            "src/io/npy.hpp": "",
            "src/ops/ops.hpp": "",
            "src/index/flat.cpp": '#include "ops/ops.hpp"\n#include "core/half.hpp"\n',
            "cli/main.cpp": '#include "commands.hpp"\n#include "io/npy.hpp"\n#include <CLI/CLI.hpp>\n',
            "cli/commands.hpp": "#include <hdf5.h>\n#include <nlohmann/json.hpp>\n#include <spdlog/spdlog.h>\n",
        })

    def test_the_right_may_not_be_included(self):
        self.assert_fault({"src/core/a.cpp": '\n#include "io/npy.hpp"\n'}, "src/core/a.cpp:2", "io/npy.hpp")
        self.assert_fault({"src/graph/a.cpp": '#include "index/flat.hpp"'}, "to the right")
        self.assert_fault({"src/eval/a.cpp": '#include "cli/x.hpp"'}, "to the right")

    def test_a_relative_include_does_not_get_around_it(self):
        self.assert_fault({"src/core/a.cpp": '#include "../io/npy.hpp"', "src/io/npy.hpp": ""}, "io is to the right")

    def test_a_public_header_includes_no_source_folder(self):
        self.assert_fault({"include/gigaknn/a.hpp": '#include "core/half.hpp"'}, "core is to the right")

    def test_io_and_simt_do_not_know_each_other(self):
        self.assert_fault({"src/io/a.cpp": '#include "simt/simt.cuh"'}, "do not know each other")
        self.assert_fault({"src/simt/a.cuh": '#include "io/npy.hpp"'}, "do not know each other")

    def test_cpu_and_gpu_do_not_know_each_other(self):
        self.assert_fault({"src/ops/cpu/a.cpp": '#include "ops/gpu/b.hpp"'}, "do not know each other")
        self.assert_fault({"src/ops/gpu/a.cu": '#include "ops/cpu/b.hpp"'}, "do not know each other")

    def test_the_ops_folder_may_include_both_devices(self):
        self.assert_sound({"src/ops/device.cpp": '#include "ops/cpu/a.hpp"\n#include "ops/gpu/b.hpp"\n'})

    def test_above_the_waist_nobody_sees_below_it(self):
        self.assert_fault({"src/index/flat.cpp": '#include "ops/cpu/distance.hpp"'}, "waist")
        self.assert_fault({"src/graph/a.cpp": '#include "simt/simt.cuh"'}, "waist")
        self.assert_sound({"bench/distance.cpp": '#include "ops/cpu/distance.hpp"'})

    def test_products_do_not_know_each_other(self):
        self.assert_fault({"bench/a.cpp": '#include "cli/x.hpp"'}, "do not know each other")

    def test_cuda_headers_stay_in_simt_and_the_runtime(self):
        for name in ("cuda_runtime.h", "cublas_v2.h", "cub/cub.cuh", "nccl.h", "mma.h"):
            self.assert_fault({"src/ops/gpu/select.cu": f"#include <{name}>"}, "CUDA header")
        self.assert_sound({
            "src/simt/simt.cuh": "#include <cuda_runtime.h>\n",
            "src/ops/gpu/runtime.cu": "#include <cublas_v2.h>\n",
        })

    def test_the_library_includes_nothing_of_the_command_line(self):
        for name in ("hdf5.h", "H5Cpp.h", "CLI/CLI.hpp", "nlohmann/json.hpp", "spdlog/spdlog.h"):
            self.assert_fault({"src/io/a.cpp": f"#include <{name}>"}, "only cli")

    def test_a_folder_outside_the_layers_is_named(self):
        self.assert_fault({"src/utils/a.cpp": ""}, "src/utils/a.cpp", "no layer")

    def test_the_program_prints_each_violation_and_exits_with_1(self):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "src/core/a.cpp"
            source.parent.mkdir(parents=True)
            program = [sys.executable, check_layers.__file__, folder]
            source.write_text('#include "io/a.hpp"\n#include "ops/ops.hpp"\n')
            run = subprocess.run(program, capture_output=True, text=True)
            self.assertEqual((run.returncode, len(run.stdout.splitlines())), (1, 2))
            source.write_text("")
            run = subprocess.run(program, capture_output=True, text=True)
            self.assertEqual((run.returncode, run.stdout), (0, ""))


if __name__ == "__main__":
    unittest.main()
