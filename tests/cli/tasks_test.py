"""Graphs built from files, in tasks: the same bytes as in memory, under the budget, killed or not."""
import fcntl
import gzip
import json
import os
import random
import resource
import signal
import subprocess
import tempfile
import time
import unittest

from support import BINARY, SANITIZED, TINY_TILES, CliTest

KILLS = int(os.environ.get("GIGAKNN_KILLS", "8"))
ROWS, COLS = 6000 if TINY_TILES else 24000, 24
TWELVE = ["--shard-rows", str(ROWS // 12)]
ASKED = ["base.u8bin", "-k", "8", "--recall", "0.5" if TINY_TILES else "0.9"]


def clustered(rows, cols, seed):
    generator = random.Random(seed)
    centres = [generator.randbytes(cols) for _ in range(60)]
    lines = []
    for _ in range(rows):
        centre = generator.choice(centres)
        noise = generator.randbytes(cols)
        lines.append(bytes(c // 2 + e // 8 for c, e in zip(centre, noise)))
    return b"".join(lines)


def contents_of(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:  # the process has ended
        return b""


def children_of(process):
    path = f"/proc/{process}/task/{process}/children"
    if os.path.exists(path):
        return [int(child) for child in contents_of(path).split()]
    parents = {name: contents_of(f"/proc/{name}/stat").rpartition(b")")[2].split() for name in os.listdir("/proc") if name.isdigit()}
    return [int(child) for child, fields in parents.items() if len(fields) > 1 and int(fields[1]) == process]


def command_of(process):
    return contents_of(f"/proc/{process}/cmdline").decode().split("\0")


def resident_bytes(process):
    """Exactly, where the system tells; its quick count is off by some pages a processor."""
    lines = contents_of(f"/proc/{process}/smaps_rollup").decode().splitlines() or contents_of(f"/proc/{process}/status").decode().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("Rss:", "VmRSS:")))


class Tasks(CliTest):
    @classmethod
    def setUpClass(cls):
        cls.contents = ROWS.to_bytes(4, "little") + COLS.to_bytes(4, "little") + clustered(ROWS, COLS, 4)

    def setUp(self):
        super().setUp()
        self.write("base.u8bin", self.contents)

    def write(self, name, contents):
        with open(self.path(name), "wb") as file:
            file.write(contents)

    def record(self, name="out.json"):
        return json.loads(self.read(name))

    def in_memory(self):
        self.run_cli("graph", *ASKED, "-o", "memory.knng")
        return self.read("memory.knng")

    def test_shards_and_workers_change_no_byte(self):
        expected = self.in_memory()
        for options in (TWELVE, TWELVE + ["--workers", "2"], ["--workers", "3"], ["--shard-rows", "100000"]):
            self.run_cli("graph", *ASKED, *options, "-o", "out.knng", "--json", "out.json")
            self.assertEqual(self.read("out.knng"), expected, options)
            self.assertEqual(self.record()["tasks"]["resumed"], 0)
            self.assertFalse(os.path.exists(self.path("out.knng.work")))
        self.run_cli("check", "out.knng")

    def test_a_file_is_mapped_however_small_it_is(self):
        """Also where all the program's own memory grows by more meanwhile; what is unpacked is in memory."""
        rows = 300
        values = self.contents[8:8 + rows * COLS]
        self.write("small.u8bin", rows.to_bytes(4, "little") + COLS.to_bytes(4, "little") + values)
        asked = ["-k", "8", "--recall", "0.5"]
        graphs = set()
        for options in (["--workers", "2"], ["--shard-rows", "100"]):
            self.run_cli("graph", "small.u8bin", *asked, *options, "-o", "out.knng", "--json", "out.json")
            self.assertGreater(self.record()["tasks"]["total"], 4)
            graphs.add(self.read("out.knng"))
        self.assertEqual(len(graphs), 1)
        self.run_cli("check", "out.knng")
        with gzip.open(self.path("small-idx2-ubyte.gz"), "wb") as file:
            file.write(b"\0\0\x08\x02" + rows.to_bytes(4, "big") + COLS.to_bytes(4, "big") + values)
        self.run_cli("graph", "small-idx2-ubyte.gz", *asked, "-o", "memory.knng")
        self.assertIn("can be mapped", self.run_cli("graph", "small-idx2-ubyte.gz", *asked, "--workers", "2", "-o", "no.knng", code=2).stderr)

    def test_a_plan_is_run_task_by_task(self):
        expected = self.in_memory()
        told = self.run_cli("plan", *ASKED, *TWELVE, "-o", "out.knng", "--json", "plan.json")
        self.assertIn("divide 12 shards of %s rows" % format(ROWS // 12, ","), told.stdout)
        tasks = self.record("plan.json")["tasks"]
        self.assertFalse(os.path.exists(self.path("out.knng")))
        for task in range(tasks - 2):
            self.run_cli("task", "out.knng.work", task)
        self.run_cli("task", "out.knng.work", 3)  # is done: nothing happens
        self.run_cli("run", "out.knng.work/plan.txt", "--json", "out.json")
        done = self.record()["tasks"]
        self.assertEqual((done["total"], done["resumed"]), (tasks, tasks - 2))
        self.assertTrue(0 < done["wait_seconds"] < done["seconds"], done)
        self.assertEqual(self.read("out.knng"), expected)

    def test_a_plan_needs_no_vectors(self):
        told = self.run_cli("plan", "--rows", 10**9, "--dim", 96, "--dtype", "u8", "--memory", "64GiB")
        self.assertIn("1,000,000,000 x 96, u8", told.stdout)
        self.assertEqual(os.listdir(self.folder), ["base.u8bin"])

    @unittest.skipIf(SANITIZED, "a sanitizer takes memory of its own")
    def test_the_budget_holds(self):
        """The peak that the system saw of a process, by its own budget."""
        refused = self.run_cli("plan", *ASKED, "--memory", "1MB", code=2)
        least = int(refused.stderr.split("needs ")[1].split()[0].rstrip(","))
        for budget in (least, 2 * least):
            run = subprocess.Popen([BINARY, "graph", *ASKED, "--shard-rows", "24000", "--memory", str(budget), "-o", "out.knng"], cwd=self.folder,
                                   stderr=subprocess.DEVNULL)
            _, status, usage = os.wait4(run.pid, 0)
            run.returncode = os.waitstatus_to_exitcode(status)
            self.assertEqual(run.returncode, 0)
            self.assertLessEqual(usage.ru_maxrss * 1024, budget)

    @unittest.skipIf(SANITIZED, "a sanitizer takes memory of its own")
    def test_the_budget_holds_for_all_processes_together(self):
        """As the system counts them while they run, mapped pages of each; and as the record says."""
        refused = self.run_cli("plan", *ASKED, "--workers", "2", "--memory", "1MB", code=2)
        budget = int(refused.stderr.split("needs ")[1].split()[0].rstrip(","))
        run = subprocess.Popen([BINARY, "graph", *ASKED, *TWELVE, "--workers", "2", "--memory", str(2 * budget), "-o", "out.knng", "--json", "out.json"],
                               cwd=self.folder, stderr=subprocess.DEVNULL)
        most, seen = 0, 1
        while run.poll() is None:
            processes = [run.pid] + children_of(run.pid)
            seen = max(seen, len(processes))
            most = max(most, sum(map(resident_bytes, processes)))
            time.sleep(0.002)
        self.assertEqual(run.returncode, 0)
        self.assertIn(seen, (2, 3))
        told = self.record()["memory"]
        self.assertLessEqual(most, told["peak_bytes"] + (4 << 20))  # the system counts a process's pages in batches
        self.assertLessEqual(told["peak_bytes"], told["planned_bytes"])
        self.assertLessEqual(told["planned_bytes"], 2 * budget)

    def test_each_worker_has_a_gpu_of_its_own(self):
        rows = 900
        self.write("small.u8bin", rows.to_bytes(4, "little") + COLS.to_bytes(4, "little") + self.contents[8:8 + rows * COLS])
        asked = ["graph", "small.u8bin", "-k", "4", "--recall", "0.5", "--shard-rows", "300", "-o"]
        self.run_cli(*asked, "cpu.knng")
        run = subprocess.Popen([BINARY, *asked, "gpus.knng", "--workers", "3", "--device", "emulated:4", "--quiet"], cwd=self.folder)
        shares = set()
        while run.poll() is None:
            for child in children_of(run.pid):
                words = command_of(child)
                if "task" in words[:2]:  # between fork and exec it has its driver's
                    shares.add(words[words.index("--device") + 1])
            time.sleep(0.002)
        self.assertEqual(run.returncode, 0)
        self.assertLessEqual({"emulated:2"}, shares)  # the first worker's; which others are seen is a matter of time
        self.assertLessEqual(shares, {"emulated", "emulated:2"})
        self.assertEqual(self.read("gpus.knng"), self.read("cpu.knng"))

    def test_the_budget_of_a_device_is_that_of_workers_too(self):
        small = ["graph", *ASKED, *TWELVE, "--device", "emulated", "--device-memory", "2KiB", "--quiet", "-o"]
        for more in ([], ["--workers", "2"]):
            said = self.run_cli(*small, f"small{len(more)}.knng", *more, code=2).stderr
            self.assertIn("budget of", said)

    def test_two_programs_on_one_plan_take_turns(self):
        expected = self.in_memory()
        command = [BINARY, "graph", *ASKED, *TWELVE, "--workers", "2", "-o", "out.knng"]
        runs = [subprocess.Popen(command, cwd=self.folder, stderr=subprocess.PIPE, text=True) for _ in range(2)]
        told = [run.communicate()[1] for run in runs]
        codes = sorted(run.returncode for run in runs)
        self.assertEqual(codes[0], 0, told)
        if codes[1] != 0:  # it had waited, and there was nothing left to do
            self.assertEqual(codes[1], 3, told)
            self.assertTrue(any("another run was at work in it, and has finished" in text for text in told), told)
        self.assertEqual(self.read("out.knng"), expected)
        self.assertFalse(os.path.exists(self.path("out.knng.work")))

    def test_a_worker_that_waits_for_a_task_says_so(self):
        self.run_cli("plan", *ASKED, *TWELVE, "--workers", 2, "-o", "out.knng")
        with open(self.path("out.knng.work/task-0.lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for options, told in (("--quiet",), ""), ((), "another process is at task 0"):
                run = subprocess.Popen([BINARY, "run", "out.knng.work", *options], cwd=self.folder, stderr=subprocess.PIPE, text=True)
                time.sleep(5 if SANITIZED else 2)
                run.send_signal(signal.SIGINT)
                stderr = run.communicate(timeout=60)[1]
                self.assertIn(told, stderr)
                self.assertEqual("another process" in stderr, bool(told), stderr)

    def test_who_interrupts_is_told_how_to_go_on(self):
        run = subprocess.Popen([BINARY, "graph", *ASKED, *TWELVE, "-o", "out.knng"], cwd=self.folder, stderr=subprocess.PIPE, text=True)
        while run.poll() is None and not os.path.exists(self.path("out.knng.work/plan.txt")):
            time.sleep(0.002)
        run.send_signal(signal.SIGINT)
        said = run.communicate(timeout=60)[1].splitlines()[-1]
        work = self.path("out.knng.work")
        self.assertEqual((run.returncode, said), (130, f"gigaknn: cancelled; what is done is in {work}, and gigaknn run {work} goes on"))
        self.run_cli("run", "out.knng.work", "--quiet")
        self.assertEqual(self.read("out.knng"), self.in_memory())

    def test_a_record_that_cannot_be_written_is_told_before_the_work(self):
        self.run_cli("plan", *ASKED, *TWELVE, "-o", "out.knng")
        for record, said in (("none/r.json", "none"), ("out.knng.work/r.json", "in the folder of the plan")):
            self.assertIn(said, self.run_cli("run", "out.knng.work", "--json", record, "--quiet", code=3 if said == "none" else 2).stderr)
            self.assertFalse(os.path.exists(self.path("out.knng")))
        self.run_cli("run", "out.knng.work", "--json", "r.json", "--quiet")
        self.assertGreater(self.record("r.json")["tasks"]["total"], 12)

    def test_a_full_disk_loses_nothing(self):
        expected = self.in_memory()
        size = len(expected)
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, size // 2))
        run = subprocess.run([BINARY, "graph", *ASKED, *TWELVE, "-o", "out.knng", "--quiet"], cwd=self.folder, preexec_fn=limit,
                             capture_output=True, text=True)
        self.assertEqual(run.returncode, 3, run.stderr)
        self.assertEqual(run.stderr.count("\n"), 1, run.stderr)
        self.assertIn("cannot write", run.stderr)
        self.assertFalse(os.path.exists(self.path("out.knng")))
        self.run_cli("graph", *ASKED, *TWELVE, "-o", "out.knng", "--json", "out.json")
        self.assertGreater(self.record()["tasks"]["resumed"], 12)
        self.assertEqual(self.read("out.knng"), expected)

    def test_what_cannot_go_on_says_so(self):
        self.run_cli("plan", *ASKED, *TWELVE, "-o", "out.knng")
        self.run_cli("task", "out.knng.work", 0)
        more = ["graph", "base.u8bin", "-k", "9", "--recall", "0.9", *TWELVE, "-o", "out.knng", "--quiet"]
        self.assertIn("was begun with k 8, not 9", self.run_cli(*more, code=2).stderr)
        self.write("base.u8bin", self.contents[:8] + self.contents[9:] + b"x")
        same = ["graph", *ASKED, *TWELVE, "-o", "out.knng", "--quiet"]
        self.assertIn("changed since", self.run_cli(*same, code=3).stderr)
        self.assertIn("changed since", self.run_cli("task", "out.knng.work", 1, "--quiet", code=3).stderr)
        self.assertIn("not done", self.run_cli("task", "out.knng.work", 20, "--quiet", code=2).stderr)
        self.assertIn("OUT.knng", self.run_cli("run", "--help").stdout)
        exact = ["graph", "base.u8bin", "-k", "8", *TWELVE, "-o", "e.knng", "--quiet"]
        self.assertIn("--recall below 1", self.run_cli(*exact, code=2).stderr)
        self.assertIn("BASE", self.run_cli("plan", "--quiet", code=2).stderr)
        # A file that would be in every worker's memory.
        header = bytes((0, 0, 8, 2)) + ROWS.to_bytes(4, "big") + COLS.to_bytes(4, "big")
        self.write("packed-idx2-ubyte.gz", gzip.compress(header + self.contents[8:8 + ROWS * COLS]))
        self.assertIn("not packed", self.run_cli("plan", "packed-idx2-ubyte.gz", "-k", "8", "--recall", "0.9", code=2).stderr)
        for options in (["--workers", "0"], ["--workers", "0", "--threads", "4"], ["--shard-rows", "-5"]):
            self.assertIn("must be at least 1", self.run_cli("graph", *ASKED, *options, "-o", "w.knng", "--quiet", code=2).stderr)
        os.mkdir(self.path("mine.knng.work"))
        self.write("mine.knng.work/letter.txt", b"dear")
        self.assertIn("other files", self.run_cli("graph", *ASKED, *TWELVE, "-o", "mine.knng", "--quiet", code=2).stderr)
        self.assertEqual(self.read("mine.knng.work/letter.txt"), b"dear")
        os.rename(self.path("out.knng.work"), self.path("other.knng.work"))
        self.assertIn("where it must be", self.run_cli("run", "other.knng.work", "--quiet", code=2).stderr)

    def test_what_goes_on_may_have_other_threads_and_workers_but_the_same_device(self):
        self.run_cli("plan", *ASKED, *TWELVE, "--threads", 1, "-o", "out.knng")
        self.run_cli("plan", *ASKED, *TWELVE, "--threads", 6, "--workers", 2, "-o", "out.knng")
        lines = self.read("out.knng.work/plan.txt").decode().splitlines()
        for line in ("threads 3", "workers 2"):
            self.assertIn(line, lines)
        self.assertIn("was begun with device cpu, not emulated", self.run_cli("graph", *ASKED, *TWELVE, "--device", "emulated", "-o", "out.knng", "--quiet", code=2).stderr)

    def test_all_cells_are_enough_whatever_the_sample_shows(self):
        rows = 64 if TINY_TILES else 2000
        self.write("few.u8bin", rows.to_bytes(4, "little") + COLS.to_bytes(4, "little") + random.Random(5).randbytes(rows * COLS))
        self.run_cli("graph", "few.u8bin", "-k", 3, "--recall", 0.999, "--shard-rows", rows // 2, "-o", "out.knng", "--json", "out.json")
        self.assertEqual(self.record()["recall"]["value"], 1)

    def test_paths_lead_where_the_system_says_they_do(self):
        os.makedirs(self.path("real/folder"))
        os.symlink("real/folder", self.path("link"))
        os.symlink(self.path("base.u8bin"), self.path("real/rows.u8bin"))  # not where "link/.." would be by its letters
        self.run_cli("graph", "link/../rows.u8bin", *ASKED[1:], *TWELVE, "-o", "link/../out.knng")
        self.assertTrue(os.path.exists(self.path("real/out.knng")))
        self.assertFalse(os.path.exists(self.path("out.knng")))

    def children_of(self, driver):
        try:
            with open("/proc/%d/task/%d/children" % (driver.pid, driver.pid)) as file:
                return [int(pid) for pid in file.read().split()]
        except FileNotFoundError:
            return []

    @staticmethod
    def is_worker(process):
        """And not a sanitizer's search for leaks, also a child: who waits for it waits for ever when it is killed."""
        try:
            with open("/proc/%d/cmdline" % process, "rb") as file:
                return b"\0task\0" in file.read()
        except (FileNotFoundError, ProcessLookupError):
            return False

    def test_killed_at_random_it_goes_on(self):
        """kill -9 of the driver or of a worker, until so many have been killed: the same bytes each time."""
        command = [BINARY, "graph", *ASKED, *TWELVE, "--workers", "2", "-o", "out.knng", "--json", "out.json", "--quiet"]
        expected = self.in_memory()
        start = time.monotonic()
        subprocess.run(command, cwd=self.folder, check=True)
        whole_s = time.monotonic() - start
        self.assertEqual(self.read("out.knng"), expected)
        generator = random.Random(11)
        told = tempfile.TemporaryFile("a+")
        self.addCleanup(told.close)
        kills, resumed = {"driver": 0, "worker": 0}, 0
        while sum(kills.values()) < KILLS or 0 in kills.values() or resumed == 0:
            os.remove(self.path("out.knng"))
            if os.path.exists(self.path("out.json")):
                os.remove(self.path("out.json"))
            finished = False
            while not finished:
                told.truncate(0)
                driver = subprocess.Popen(command, cwd=self.folder, stderr=told)
                time.sleep(generator.uniform(0, whole_s))
                children = self.children_of(driver)
                workers = [child for child in children if self.is_worker(child)]
                if generator.random() < 0.5:
                    if driver.poll() is None:
                        driver.kill()
                        driver.wait()
                        kills["driver"] += 1
                    self.assert_end(children)
                elif workers:
                    try:
                        os.kill(generator.choice(workers), generator.choice((signal.SIGKILL, signal.SIGTERM)))
                        kills["worker"] += 1
                    except ProcessLookupError:
                        pass
                code = driver.wait()
                # One worker's death is mended: a driver that was not killed itself has done its work.
                told.seek(0)
                self.assertIn(code, (0, -signal.SIGKILL), told.read())
                # It may be killed when its work is done and taken away, but before it could say so.
                finished = os.path.exists(self.path("out.knng")) and not os.path.exists(self.path("out.knng.work"))
                if code == 0:
                    self.assertTrue(finished)
                    resumed += self.record()["tasks"]["resumed"]
            self.assertEqual(self.read("out.knng"), expected)
            self.assertLessEqual(set(os.listdir(self.folder)), {"base.u8bin", "memory.knng", "out.json", "out.knng"})

    def assert_end(self, processes):
        """They die with their driver."""
        end = time.monotonic() + 60  # of a machine that has others' work to do
        while any(os.path.exists("/proc/%d/exe" % process) and self.runs(process) for process in processes):
            self.assertLess(time.monotonic(), end, "a worker outlives its driver")
            time.sleep(0.01)

    @staticmethod
    def runs(process):
        try:
            with open("/proc/%d/stat" % process) as file:
                return file.read().rsplit(")", 1)[1].split()[0] != "Z"
        except (FileNotFoundError, ProcessLookupError):  # the latter where it ends between open and read
            return False


if __name__ == "__main__":
    unittest.main()
