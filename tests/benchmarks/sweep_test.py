"""That the sweep draws what it says, runs on a CPU, and reports what was measured. Its argument is the build folder."""
import csv
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

BENCHMARKS = pathlib.Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
sys.path.insert(0, str(BENCHMARKS / "peers"))
sys.dont_write_bytecode = True
BUILD = pathlib.Path(sys.argv.pop())

import collect  # noqa: E402
import ops_speed  # noqa: E402
import sweep_report  # noqa: E402

SMALL = ("--smallest-mib", "0.02", "--largest-mib", "0.2")


def listed(*arguments):
    done = subprocess.run([BUILD / "benchmarks" / "sweep", "--list", *arguments], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["cases"]


def moves(case):
    """Whether a permutation changes the order of elements."""
    kept = [axis for axis in case["axes"] if case["shape"][axis] > 1]
    return kept != sorted(kept)


class Drawing(unittest.TestCase):
    def test_a_seed_gives_the_same_cases_whatever_the_families(self):
        every, permutations = listed("--seed", "3"), listed("--seed", "3", "--families", "permute")
        self.assertEqual([case for case in every if case["family"] == "permute"], permutations)
        self.assertEqual(len(every), 600)
        self.assertEqual([case["family"] for case in every[:4]], ["prelu", "permute", "batch_norm", "matvec"])
        self.assertNotEqual(every, listed("--seed", "4"))

    def test_cases_cover_what_they_should(self):
        cases = [case for seed in "123" for case in listed("--seed", seed)]
        for case in cases:
            self.assertTrue(1 << 20 <= case["bytes"] <= 512 << 20, case)
            self.assertTrue(case["family"] != "permute" or moves(case), case)
        for family, dtypes in (("prelu", 4), ("permute", 7), ("batch_norm", 4), ("matvec", 4)):
            own = [case for case in cases if case["family"] == family]
            self.assertEqual(len({case["dtype"] for case in own}), dtypes)
            self.assertEqual(len({(case["case"], case["dtype"], case["layout"]) for case in own[:150]}), 150)
            self.assertTrue(60 <= sum(case["bytes"] >= 16 << 20 for case in own[:150]))
        self.assertEqual({len(case["shape"]) for case in cases if case["family"] == "permute"}, {2, 3, 4, 5, 6})
        self.assertEqual(len({case["kind"] for case in cases if case["family"] == "batch_norm"}), 5)
        self.assertEqual({case["vectors"] for case in cases if case["family"] == "matvec"}, set(range(1, 17)))

    def test_what_cannot_be_drawn_is_an_error(self):
        for arguments in (["--families", "gemm"], ["--cases", "0"], ["--smallest-mib", "4", "--largest-mib", "2"], ["--nonsense"]):
            done = subprocess.run([BUILD / "benchmarks" / "sweep", "--list", *arguments], capture_output=True, text=True, check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertTrue(done.stderr)


class Running(unittest.TestCase):
    def run_program(self, name, *arguments):
        return subprocess.run([sys.executable, BENCHMARKS / name, BUILD, "--cpu", "--no-torch", *arguments], capture_output=True,
                              text=True, check=False)

    def test_a_sweep_on_the_cpu_leaves_rows_for_collect(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.run_program("sweep.py", "--cases", "3", *SMALL, "--rows", folder)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            rows = sweep_report.read(pathlib.Path(folder))
            self.assertEqual(len(rows), 12)
            self.assertEqual(rows[0]["mode"], "seed 1")
            self.assertIn("prelu", rows[0]["kernel"])
            collected = subprocess.run([sys.executable, BENCHMARKS / "collect.py", folder, pathlib.Path(folder) / "results"],
                                       capture_output=True, text=True, check=False)
            self.assertEqual(collected.returncode, 0, collected.stderr)
            self.assertEqual(len(sweep_report.read(pathlib.Path(folder) / "results" / "none.json")), 12)

    def test_time_that_is_over_ends_a_sweep(self):
        done = self.run_program("sweep.py", "--cases", "3", *SMALL, "--budget-seconds", "0")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("the time is over after 0 of 12 cases", done.stdout)

    def test_every_op_can_be_called(self):
        with tempfile.TemporaryDirectory() as folder:
            table = pathlib.Path(folder) / "ops.csv"
            done = self.run_program("ops_speed.py", "--small", "--table", str(table))
            self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr)
            with table.open(encoding="utf-8", newline="") as file:
                rows = list(csv.DictReader(file))
            self.assertEqual(sum(row["op"] == "conv2d" and row["size"] == "large" for row in rows), 2)
            self.assertEqual(sum(row["op"] == "sum of rows" and row["size"] == "odd" for row in rows), 1)
            self.assertTrue(all(float(row["us"]) > 0 and row["measured"] for row in rows))


class Reporting(unittest.TestCase):
    def row(self, us, share, mib, **peers):
        return {"suite": "sweep", "case": f"prelu forward ({us})", "dtype": "float32", "layout": "NCHW", "us": us, "family": "prelu",
                "share_of_copy": share, "bytes": mib * 2**20, "kernel": "prelu: default", "peers_us": peers}

    def test_quantiles_lie_between_values(self):
        self.assertEqual(sweep_report.quantile([3.0, 1.0, 2.0], 0.5), 2.0)
        self.assertAlmostEqual(sweep_report.quantile(list(range(101)), 0.05), 5.0)
        self.assertAlmostEqual(sweep_report.quantile([0.0, 1.0], 0.05), 0.05)

    def test_the_better_peer_counts(self):
        self.assertEqual(sweep_report.better_peer(self.row(10.0, 0.9, 32, torch_eager=20.0, torch_compile=8.0)), ("torch_compile", 0.8))
        self.assertIsNone(sweep_report.better_peer(self.row(10.0, 0.9, 32)))

    def test_goals_hold_for_large_tensors(self):
        rows = [self.row(10.0 + i, 0.95, 32, torch_eager=40.0) for i in range(20)] + [self.row(5.0, 0.1, 2, torch_eager=5.0)]
        text = sweep_report.report(rows)
        self.assertNotIn("MISSED", text)
        self.assertIn("10.0 %      5.00 us", text)
        text = sweep_report.report(rows + [self.row(30.0, 0.2, 64, torch_eager=15.0) for _ in range(3)])
        self.assertIn("MISSED at 0.05", text)
        self.assertIn("MISSED at 0", text)
        self.assertEqual(collect.join(rows, []), [])


class Weak(unittest.TestCase):
    def row(self, us, peer_us, share=1.0, minimum_bytes=1 << 24):
        case = {"op": "add", "variant": "", "size": "odd", "dtype": "float32", "layout": "", "inputs": []}
        reply = {"us": us, "kernel": "add: default", "plan": "", "minimum_bytes": minimum_bytes, "flops": 0, "share_of_copy": share}
        return ops_speed.Row(case, reply, peer_us, "none")

    def test_a_row_is_weak_beside_a_faster_peer(self):
        self.assertTrue(self.row(100.0, 96.0).is_weak)
        self.assertFalse(self.row(100.0, 98.0).is_weak)
        self.assertFalse(self.row(100.0, None).is_weak)

    def test_a_low_share_is_weak_unless_no_peer_is_faster(self):
        self.assertTrue(self.row(100.0, None, share=0.4).is_weak)
        self.assertTrue(self.row(100.0, 99.0, share=0.4).is_weak)
        self.assertFalse(self.row(100.0, 100.0, share=0.4).is_weak)
        self.assertFalse(self.row(100.0, None, share=0.4, minimum_bytes=4).is_weak)
        self.assertEqual(self.row(100.0, 99.0, share=0.4).cells()[-2:], ["0.99", "weak"])
        self.assertEqual(self.row(100.0, 98.0).cells()[-2:], ["0.98", ""])


@unittest.skipUnless(BUILD.exists(), "no build")
class Attributes(unittest.TestCase):
    def test_attributes_are_read_as_sinter_prints_them(self):
        try:
            from torch_ops import parse
        except SystemExit:
            self.skipTest("no torch")
        self.assertEqual(parse("pool={kernel=[3, 3], layout=NHWC, ceil_mode=false}, height=4, low=-inf"),
                         {"pool": {"kernel": [3, 3], "layout": "NHWC", "ceil_mode": False}, "height": 4, "low": float("-inf")})


if __name__ == "__main__":
    unittest.main()
