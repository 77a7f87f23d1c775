"""Ctrl-C ends a long job within a second; no kill leaves a file under the final name."""
import os
import signal
import subprocess
import time
import unittest

from support import BINARY, CliTest

ROWS, COLS = 60000, 96  # by chi2 and two threads: half a minute of work at the least


class Interrupt(CliTest):
    def setUp(self):
        super().setUp()
        with open(self.path("base.fbin"), "wb") as file:
            file.write(ROWS.to_bytes(4, "little") + COLS.to_bytes(4, "little"))
            import array
            import random
            generator = random.Random(3)
            block = array.array("f", [generator.random() for _ in range(997 * COLS)])
            block = block.tobytes()
            whole = block * (ROWS // 997 + 1)
            file.write(whole[:ROWS * COLS * 4])
        self.before = sorted(os.listdir(self.folder))

    def start(self, *options):
        return subprocess.Popen([BINARY, "graph", "base.fbin", "-k", "10", "-o", "out.knng", "--metric", "chi2",
                                 "--threads", "2", "--json", "out.json", "--report", "out.html", *options], cwd=self.folder,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    @staticmethod
    def wait_until_caught(run, number):
        """Until the program has its handler: before that, a signal ends it as it ends any program."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with open("/proc/%d/status" % run.pid) as status:
                caught = next(line for line in status if line.startswith("SigCgt")).split()[1]
            if int(caught, 16) >> (number - 1) & 1:
                return
            time.sleep(0.002)

    def interrupt_after(self, seconds, number):
        run = self.start("--quiet")
        self.wait_until_caught(run, number)
        time.sleep(seconds)
        self.assertIsNone(run.poll(), "the job was too short to be interrupted")
        start = time.monotonic()
        run.send_signal(number)
        stdout, stderr = run.communicate(timeout=30)
        elapsed = time.monotonic() - start
        self.assertLess(elapsed, 1.0)
        self.assertEqual(run.returncode, 130, stderr)
        self.assertEqual(stdout, "")
        self.assertEqual(stderr.count("\n"), 1, stderr)
        self.assertTrue(stderr.startswith("gigaknn: "), stderr)
        self.assertEqual(sorted(os.listdir(self.folder)), self.before)

    def test_control_c_ends_within_a_second_whenever_it_comes(self):
        for seconds in (0, 0.1, 0.4, 1.5):
            self.interrupt_after(seconds, signal.SIGINT)

    def test_a_request_to_terminate_ends_as_well(self):
        self.interrupt_after(0.7, signal.SIGTERM)

    def test_a_kill_leaves_no_file_under_the_final_name(self):
        run = self.start()
        time.sleep(1)
        run.kill()
        run.communicate()
        for name in ("out.knng", "out.json", "out.html"):
            self.assertFalse(os.path.exists(self.path(name)), name)

    def test_a_log_gets_lines_and_no_control_characters(self):
        run = self.start()
        time.sleep(12)
        run.send_signal(signal.SIGINT)
        _, stderr = run.communicate(timeout=30)
        self.assertNotIn("\r", stderr)
        self.assertNotIn("\033", stderr)
        self.assertRegex(stderr, r"\d+ %.*left")


if __name__ == "__main__":
    unittest.main()
