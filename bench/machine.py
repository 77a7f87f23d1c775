"""The machine of a benchmark, as folders of results are named."""

import os
import pathlib
import re


def machine_name():
    """The CPU's name, the number of CPUs that this process may use and, of an x86 without AVX-512, "avx2": "amd-epyc-2c-avx2"."""
    facts = pathlib.Path("/proc/cpuinfo").read_text()
    model = re.search(r"model name\s*:\s*(.*)", facts)
    words = "".join(c if c.isalnum() else " " for c in (model[1] if model else "cpu").lower()).split()
    return "-".join([*words, f"{len(os.sched_getaffinity(0))}c", *(["avx2"] if " avx2 " in facts and " avx512f " not in facts else [])])
