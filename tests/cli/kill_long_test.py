"""kill -9 at any moment: under the final name stands nothing, the old file, or the whole new one."""
import os
import random
import subprocess
import time
import unittest

from support import BINARY, CliTest

ROWS, COLS = 20000, 128
KILLS = 60


class Kill(CliTest):
    def setUp(self):
        super().setUp()
        generator = random.Random(8)
        with open(self.path("base.u8bin"), "wb") as file:
            file.write(ROWS.to_bytes(4, "little") + COLS.to_bytes(4, "little"))
            file.write(generator.randbytes(ROWS * COLS))

    def kill_at_every_moment(self, arguments, outputs, old):
        """Runs once to the end, then kills it at times spread over that; `old`: files stand there before."""
        start = time.monotonic()
        self.run_cli(*arguments)
        whole_s = time.monotonic() - start
        whole = {name: self.read(name) for name in outputs}
        ended = 0
        for i in range(KILLS):
            for name in outputs:
                os.remove(self.path(name))
                if old:
                    with open(self.path(name), "wb") as file:
                        file.write(b"old")
            run = subprocess.Popen([BINARY, *arguments], cwd=self.folder, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
            time.sleep(whole_s * 1.1 * (i + 0.5) / KILLS)
            run.kill()
            ended += run.wait() == 0
            for name in outputs:
                if old or os.path.exists(self.path(name)):
                    self.assertIn(self.read(name), (whole[name], b"old") if old else (whole[name],), (i, name))
                else:
                    open(self.path(name), "wb").close()
        self.assertLess(ended, KILLS, "the job was too short to be killed")
        self.run_cli(*arguments)
        self.assertEqual({name: self.read(name) for name in outputs}, whole)
        named = [name for name in os.listdir(self.folder) if ".tmp." in name]
        self.assertLessEqual(len(named), 3, "killed jobs leave files: %s" % named)

    def test_graph(self):
        self.kill_at_every_moment(["graph", "base.u8bin", "-k", "30", "-o", "g.knng"], ["g.knng"], old=True)

    def test_search_with_two_results(self):
        self.kill_at_every_moment(["search", "base.u8bin", "--queries", "base.u8bin", "-k", "20", "-o", "i.ibin",
                                   "--distances", "d.fbin"], ["i.ibin", "d.fbin"], old=False)

    def test_convert(self):
        self.kill_at_every_moment(["convert", "base.u8bin", "big.npy"], ["big.npy"], old=True)


if __name__ == "__main__":
    unittest.main()
