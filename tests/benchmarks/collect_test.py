"""How collect.py joins rows, judges targets and names its file; and that plot.py draws what it wrote."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

BENCHMARKS = pathlib.Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
sys.dont_write_bytecode = True

import collect  # noqa: E402


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

    def test_files_are_named_after_the_gpu(self):
        self.assertEqual(collect.file_name("NVIDIA H200"), "h200")
        self.assertEqual(collect.file_name("NVIDIA GeForce RTX 4090"), "geforce-rtx-4090")


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

            done = self.run_program("plot.py", folder / "results" / "h200.json", "--output", folder)
            self.assertEqual(done.returncode, 0, done.stderr)
            drawing = (folder / "h200-prelu.svg").read_text(encoding="utf-8")
            self.assertIn("95 %", drawing)
            self.assertEqual(drawing.count("forward (2,3)"), 1)  # only rows with a target

    def test_rows_of_two_gpus_are_refused(self):
        with tempfile.TemporaryDirectory() as name:
            for i, gpu in enumerate(("NVIDIA H200", "NVIDIA H100")):
                part = {"gpu": gpu, "versions": {}, "rows": [row(us=1.0)]}
                (pathlib.Path(name) / f"sinter_{i}.json").write_text(json.dumps(part), encoding="utf-8")
            done = self.run_program("collect.py", name, name)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("one GPU", done.stderr)


if __name__ == "__main__":
    unittest.main()
