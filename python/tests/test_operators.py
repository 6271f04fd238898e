"""PyTorch's operators on the emulated device. They need PyTorch with CUDA, and pinlane's runtime:

    LD_LIBRARY_PATH=build/cudart LD_PRELOAD=build/cudart/libcudart.so.13:build/cudart/libcuda.so.1 \
        PYTHONPATH=python python -m unittest python/tests/test_operators.py
"""

import ctypes
import io
import os
import sys
import unittest
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))


def setUpModule():
    if not hasattr(ctypes.CDLL(None), "pinlane_launch"):
        raise unittest.SkipTest("this process does not have pinlane's CUDA runtime")
    try:
        from pinlane import operators
        import torch
    except ImportError:
        raise unittest.SkipTest("PyTorch is not installed")
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    operators.load()


def kinds(findings):
    return [finding["kind"] for finding in findings]


class Results(unittest.TestCase):
    def test_each_operator_gives_the_results_of_the_cpu(self):
        def compare():
            import op_infos

            found = op_infos.compare(shown=io.StringIO())
            return {kind: dict(names) for kind, names in found.items()}

        from forked import forked

        found, _ = forked(compare)
        self.assertEqual(found.get("wrong", {}), {})
        self.assertEqual(list(found.get("refused", {})), ["to_sparse"])
        self.assertGreater(len(found["pass"]), 650)
        print(", ".join(f"{kind} {len(names)}" for kind, names in found.items()), end=" ")

    def test_trainings_give_the_losses_of_the_cpu_in_every_mode(self):
        from forked import MODES, forked
        from training import TRAININGS, train

        for name, (model, inputs, optimizer, *amp) in TRAININGS.items():
            def on(device):
                return train(model, inputs, device, optimizer, *amp)

            expected, _ = forked(lambda: on("cpu"))
            for mode in MODES:
                with self.subTest(name, mode=mode):
                    losses, findings = forked(lambda: on("cuda"), f"7:{mode}")
                    self.assertEqual(findings, [])
                    for loss, right in zip(losses, expected, strict=True):
                        self.assertAlmostEqual(loss, right, delta=0.02 if amp else 1e-4)

    def test_random_numbers_depend_on_the_seed_and_the_state_alone(self):
        def numbers():
            import torch

            def draw():
                dropped = torch.nn.functional.dropout(torch.ones(8, 8, device="cuda"))
                return torch.cat([torch.rand(4, device="cuda"), torch.randn(4, device="cuda"),
                                  torch.randperm(4, device="cuda"), dropped.flatten()]).tolist()

            torch.manual_seed(5)
            host = torch.rand(1).item()
            torch.manual_seed(5)
            first = draw()
            self.assertEqual(torch.rand(1).item(), host, "the host's generator is another one")
            state = torch.cuda.get_rng_state()
            second = draw()
            torch.cuda.set_rng_state(state)
            again = draw()
            torch.manual_seed(5)
            return first, second, again, draw()

        from forked import forked

        (first, second, again, anew), _ = forked(numbers)
        self.assertNotEqual(first, second)
        self.assertEqual(second, again)
        self.assertEqual(first, anew)
        lazily, _ = forked(numbers, "3:lazy")
        self.assertEqual(lazily[0], first)


class Uses(unittest.TestCase):
    """Two streams that nothing orders, on the rows and columns of one tensor."""

    def findings(self, first, second):
        def run():
            import torch

            x = torch.zeros(64, 1024, device="cuda")
            y = torch.ones(64, 1024, device="cuda")
            index = torch.arange(64, device="cuda")
            torch.cuda.synchronize()
            streams = torch.cuda.Stream(), torch.cuda.Stream()
            for stream, work in zip(streams, (first, second)):
                with torch.cuda.stream(stream):
                    kept = work(x, y, index)  # noqa: F841
            torch.cuda.synchronize()

        from forked import forked

        return kinds(forked(run)[1])

    def assert_races(self, first, second):
        self.assertIn("Race", self.findings(first, second))
        self.assertIn("Race", self.findings(second, first))

    def assert_no_race(self, first, second):
        self.assertEqual(self.findings(first, second), [])
        self.assertEqual(self.findings(second, first), [])

    def test_an_index_uses_the_rows_that_it_names(self):
        def write(x, y, index):
            x[20:30].copy_(y[20:30])

        def select(a, b):
            return lambda x, y, index: x.index_select(0, index[a:b])

        self.assert_no_race(select(0, 10), write)
        self.assert_races(select(5, 25), write)
        self.assert_no_race(lambda x, y, i: x[i[30:40]], write)
        self.assert_races(lambda x, y, i: x[i[29:40]], write)
        self.assert_no_race(lambda x, y, i: x.gather(0, i[:20, None].expand(20, 4)), write)
        self.assert_races(lambda x, y, i: x.gather(0, i[:21, None].expand(21, 4)), write)
        self.assert_no_race(lambda x, y, i: x.index_add_(0, i[:20], y[:20]), write)
        self.assert_races(lambda x, y, i: x.index_add_(0, i[:21], y[:21]), write)
        self.assert_no_race(lambda x, y, i: x.index_put_((i[:20],), y[0]), write)
        self.assert_races(lambda x, y, i: x.index_put_((i[:21],), y[0]), write)

    def test_views_use_their_own_elements(self):
        def columns(a, b):
            return lambda x, y, index: x[:, a:b].add_(1)

        self.assert_no_race(columns(0, 8), columns(8, 16))
        self.assert_races(columns(0, 9), columns(8, 16))
        self.assert_no_race(lambda x, y, i: x[::2].mul_(2), lambda x, y, i: x[1::2].mul_(2))
        self.assert_no_race(lambda x, y, i: x.t()[3].sum(), lambda x, y, i: x[:, 4].zero_())
        self.assert_races(lambda x, y, i: x.t()[4].sum(), lambda x, y, i: x[:, 4].zero_())
        self.assert_no_race(lambda x, y, i: x[:1].expand(9, 1024).sum(),
                            lambda x, y, i: x[1].zero_())
        self.assert_no_race(lambda x, y, i: x.sum(), lambda x, y, i: x.mean())
        self.assert_no_race(lambda x, y, i: x[3, :0].zero_(), lambda x, y, i: x.zero_())


class Stops(unittest.TestCase):
    def test_what_runs_only_on_a_gpu_stops_by_its_name(self):
        def run():
            import torch

            try:
                torch.ones(2, 2, device="cuda").to_sparse()
            except RuntimeError as error:
                return str(error)

        from forked import forked

        text, _ = forked(run)
        self.assertIn("aten::_to_sparse runs only on a GPU", text)

    def test_an_index_that_is_out_of_range_is_raised_by_the_next_wait(self):
        def run():
            import torch

            try:
                torch.ones(3, device="cuda")[torch.tensor([7], device="cuda")].sum().item()
            except RuntimeError as error:
                return str(error)

        from forked import MODES, forked

        for mode in MODES:
            text, _ = forked(run, f"1:{mode}")
            self.assertIn("out of", text)


if __name__ == "__main__":
    unittest.main()
