"""How collect.py joins rows, judges targets and names its file; and that plot.py draws what it wrote."""
import ast
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

BENCHMARKS = pathlib.Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
sys.dont_write_bytecode = True

import collect  # noqa: E402
import tables  # noqa: E402


def row(**values):
    return {"suite": "prelu", "case": "forward (2,3)", "dtype": "float32", "layout": "NCHW", **values}


class Collect(unittest.TestCase):
    def test_speedup_depends_on_the_figure(self):
        self.assertEqual(collect.speedup(row(us=10.0, peers_us={"cudnn": 25.0}), "cudnn"), 2.5)
        self.assertEqual(collect.speedup(row(host_us=4.0, peers_host_us={"torch_eager": 6.0}), "torch_eager"), 1.5)
        self.assertEqual(collect.speedup(row(img_s=300.0, peers_img_s={"torch_eager": 200.0}), "torch_eager"), 1.5)
        self.assertIsNone(collect.speedup(row(us=10.0), "cudnn"))

    def test_a_target_needs_all_of_its_parts(self):
        def judged(share, peers):
            target = {"share_of_copy": 0.9, "speedup": {"cudnn": 1.2}}
            return collect.judge(row(us=10.0, share_of_copy=share, target=target, peers_us=peers))

        self.assertIs(judged(0.9, {"cudnn": 12.0}), True)
        self.assertIs(judged(0.9, {"cudnn": 11.9}), False)
        self.assertIs(judged(0.89, {"cudnn": 12.0}), False)
        self.assertIsNone(judged(0.9, {}))
        self.assertIs(judged(0.89, {}), False)  # missed whatever the peer
        self.assertIsNone(collect.judge(row(us=10.0)))
        self.assertIs(collect.judge(row(img_s=10.0, accuracy=0.9, target={"accuracy": 0.903})), False)

    def test_peers_join_the_row_of_their_case(self):
        ours = [row(us=10.0), row(us=20.0, layout="NHWC", peers_us={"cudnn": 30.0})]
        peers = [
            row(peer="torch_eager", us=15.0, layout="NHWC"),
            row(peer="torch_eager", img_s=15.0),  # another figure than ours
            row(peer="torch_eager", us=15.0, dtype="float16"),
        ]
        self.assertEqual(collect.join(ours, peers), peers[1:])
        self.assertNotIn("peers_us", ours[0])
        self.assertEqual(ours[1]["peers_us"], {"cudnn": 30.0, "torch_eager": 15.0})

    def test_all_modes_of_a_case_have_its_peers(self):
        ours = [row(img_s=20.0, mode="eager"), row(img_s=30.0, mode="job")]
        self.assertEqual(collect.join(ours, [row(peer="torch_compile", img_s=25.0)]), [])
        self.assertEqual([collect.speedup(each, "torch_compile") for each in ours], [0.8, 1.2])

    def test_met_is_judged_again_with_the_peers(self):
        ours = [row(us=10.0, target={"speedup": {"torch_eager": 1.0}}, met=True)]
        self.assertEqual(collect.join(ours, [row(peer="torch_eager", us=9.0, peak_gib=2.0)]), [])
        self.assertIs(ours[0]["met"], False)
        self.assertEqual(ours[0]["peers"], {"torch_eager": {"peak_gib": 2.0}})

    def test_the_best_of_the_peers_may_be_the_target(self):
        ours = [row(img_s=120.0, p50_us=90.0, target={"speedup": {"best": 1.15}, "latency": 0.8})]
        self.assertIsNone(collect.judge(ours[0]))
        collect.join(ours, [row(peer="torch_eager", img_s=80.0, p50_us=200.0), row(peer="torch_compile", img_s=100.0, p50_us=120.0)])
        self.assertEqual(collect.speedup(ours[0], "best"), 1.2)
        self.assertEqual(collect.latency_share(ours[0]), 0.75)
        self.assertIs(ours[0]["met"], True)
        self.assertIs(collect.judge({**ours[0], "p50_us": 97.0}), False)
        self.assertIs(collect.judge({**ours[0], "img_s": 114.0}), False)
        times = row(us=10.0, peers_us={"torch_eager": 30.0, "cudnn": 15.0})
        self.assertEqual(collect.speedup(times, "best"), 1.5)

    def test_every_suite_says_what_it_measures(self):
        for suite, paths in collect.SOURCES.items():
            for path in paths:
                self.assertTrue((BENCHMARKS.parent / path).exists(), f"{suite}: {path}")
        suites = {path.name.removesuffix("_benchmark.cpp") for path in BENCHMARKS.glob("*_benchmark.cpp")}
        self.assertEqual({suite for suite in suites if not suite.endswith("_cpu")} - set(collect.SOURCES), set())

    def test_files_are_named_after_the_gpu(self):
        self.assertEqual(collect.file_name("NVIDIA H200"), "h200")
        self.assertEqual(collect.file_name("NVIDIA GeForce RTX 4090"), "geforce-rtx-4090")


class Tables(unittest.TestCase):
    def test_pages_say_what_the_results_say(self):
        done = subprocess.run([sys.executable, BENCHMARKS / "tables.py", "--check"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_columns_that_nobody_has_are_left_out(self):
        both = {"suite": "infer", "dtype": "mixed_f16", "layout": "NHWC"}
        rows = [{**both, "case": "resnet50 batch 1", "img_s": 1000.0, "p50_us": 900.0, "p99_us": 950.0, "host_p50_us": 1000.0,
                 "host_p99_us": 1100.0, "peers_img_s": {"torch_compile": 500.0},
                 "peers": {"torch_compile": {"p50_us": 1800.0, "p99_us": 2000.0}}},
                {**both, "case": "resnet50 batch 256", "dtype": "tf32", "img_s": 20000.0}]
        self.assertEqual(tables.infer(rows).splitlines(), [
            "| images a second | Sinter | compiled | / the best | p50 (p99), µs | / the least | from the host |",
            "| --- | --- | --- | --- | --- | --- | --- |",
            "| resnet50 batch 1 | 1,000 | 500 | 2.00 | 900 (950) | 0.50 | 1,000 (1,100) |",
            "| resnet50 batch 256, TF32 | 20,000 |  |  |  |  |  |"])
        rows = [{**both, "suite": "scaling", "case": "resnet50 batch 256 on 2 GPUs", "img_s": 18000.0, "efficiency": 0.98765,
                 "peak_gib": 9.98}]
        self.assertIn("| resnet50 batch 256 on 2 GPUs | 18,000 | 0.988 | 10.0 |", tables.scaling(rows))


class Programs(unittest.TestCase):
    def run_program(self, name, *arguments):
        return subprocess.run([sys.executable, BENCHMARKS / name, *arguments], capture_output=True, text=True, check=False)

    def test_the_result_can_be_read_and_drawn(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            ours = [row(us=10.0, copy_us=9.5, share_of_copy=0.95, target={"share_of_copy": 0.9}), row(us=5.0, dtype="float16")]
            for file, rows in (("sinter_a", ours), ("peer_a", [row(peer="torch_eager", us=20.0)])):
                part = {"gpu": "NVIDIA H200", "versions": {file: "1"}, "rows": rows}
                (folder / f"{file}.json").write_text(json.dumps(part), encoding="utf-8")
            done = self.run_program("collect.py", folder, folder / "results", "--commit", "abc")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("prelu: 1 of 1 targets met", done.stdout)
            result = json.loads((folder / "results" / "h200.json").read_text(encoding="utf-8"))
            self.assertEqual((result["gpu"], result["commit"]), ("NVIDIA H200", "abc"))
            self.assertEqual(result["versions"], {"sinter_a": "1", "peer_a": "1"})
            self.assertEqual([r.get("met") for r in result["rows"]], [True, None])
            self.assertEqual({r["commit"] for r in result["rows"]}, {"abc"})

            done = self.run_program("plot.py", folder / "results" / "h200.json", "--output", folder)
            self.assertEqual(done.returncode, 0, done.stderr)
            drawing = (folder / "h200-prelu.svg").read_text(encoding="utf-8")
            self.assertIn("95 %", drawing)
            self.assertEqual(drawing.count("forward (2,3)"), 1)  # only rows with a target

    def test_older_rows_stay_unless_what_they_measure_has_changed(self):
        with tempfile.TemporaryDirectory() as name, unittest.mock.patch.object(collect, "ROOT", pathlib.Path(name)):
            folder, commits = pathlib.Path(name), []

            def commit(file):
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                (folder / file).write_text(file, encoding="utf-8")
                who = ["-c", "user.name=nobody", "-c", "user.email=nobody@localhost"]
                for arguments in (["add", "-A"], [*who, "commit", "-qm", file]):
                    self.assertIsNotNone(collect.git(*arguments))
                commits.append(collect.git("rev-parse", "--short", "HEAD"))

            if collect.git("init", "-q") is None:
                self.skipTest("no git")
            for file in ("ops/prelu/a.cpp", "ops/permute/b.cpp", "docs/c.md"):
                commit(file)
            first, second, _ = commits
            old = [row(us=1.0, case="old prelu"), row(us=1.0, case="measured again"),
                   row(us=1.0, case="old permute", suite="permute"),  # older than its kernel
                   row(us=1.0, case="newer permute", suite="permute", commit=second, date="2026-01-02"),
                   row(us=1.0, case="of nobody knows when", date="2026-01-02"),
                   row(us=1.0, case="unknown", commit="0123456789", date="2026-01-02"),
                   row(us=1.0, case="sweep of prelu", suite="sweep", family="prelu", commit=first, date="2026-01-02")]
            path = folder / "h200.json"
            path.write_text(json.dumps({"commit": first, "date": "2026-01-01", "rows": old}), encoding="utf-8")
            stay = collect.kept(path, [row(us=2.0, case="measured again")])
            self.assertEqual([(r["case"], r["commit"], r["date"]) for r in stay],
                             [("old prelu", first, "2026-01-01"), ("newer permute", second, "2026-01-02"),
                              ("sweep of prelu", first, "2026-01-02")])

    def test_rows_of_two_gpus_are_refused(self):
        with tempfile.TemporaryDirectory() as name:
            for i, gpu in enumerate(("NVIDIA H200", "NVIDIA H100")):
                part = {"gpu": gpu, "versions": {}, "rows": [row(us=1.0)]}
                (pathlib.Path(name) / f"sinter_{i}.json").write_text(json.dumps(part), encoding="utf-8")
            done = self.run_program("collect.py", name, name)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("one GPU", done.stderr)


class Peers(unittest.TestCase):
    def test_import_names_that_their_neighbours_have(self):
        """PyTorch need not be here, so their sources are read."""
        trees = {path.stem: ast.parse(path.read_text(encoding="utf-8")) for path in (BENCHMARKS / "peers").glob("*.py")}
        self.assertGreater(len(trees), 5)

        def names_of(tree):
            for node in tree.body:
                if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                    yield node.name
                for target in node.targets if isinstance(node, ast.Assign) else []:
                    yield from (part.id for part in ast.walk(target) if isinstance(part, ast.Name))

        missing = [f"{name}: {imported.name} of {node.module}"
                   for name, tree in trees.items() for node in ast.walk(tree)
                   if isinstance(node, ast.ImportFrom) and node.module in trees
                   for imported in node.names if imported.name not in set(names_of(trees[node.module]))]
        self.assertEqual(missing, [])


if __name__ == "__main__":
    unittest.main()
