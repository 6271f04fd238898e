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

    def test_a_program_that_switches_cudnn_on_gets_the_same_results(self):
        def on(device):
            import torch
            from torch.nn import functional

            torch.backends.cudnn.enabled = True
            torch.manual_seed(3)
            x = torch.randn(2, 3, 4, 4).to(device).requires_grad_()
            grid = torch.rand(2, 5, 5, 2).to(device).requires_grad_()
            norm = torch.nn.BatchNorm2d(3).to(device)
            lstm = torch.nn.LSTM(4, 5).to(device)
            y = functional.grid_sample(norm(x), grid, align_corners=True)
            (y.square().sum() + lstm(x[0])[0].square().sum()).backward()
            return [t.detach().cpu().flatten().tolist() for t in
                    (y, x.grad, grid.grad, norm.running_var, lstm.weight_hh_l0.grad)]

        from forked import forked

        expected, _ = forked(lambda: on("cpu"))
        found, findings = forked(lambda: on("cuda"))
        self.assertEqual(findings, [])
        for one, other in zip(found, expected, strict=True):
            for a, b in zip(one, other, strict=True):
                self.assertAlmostEqual(a, b, delta=1e-4)

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


    def test_a_graph_replays_operators_with_new_random_numbers(self):
        def run():
            import torch

            x = torch.zeros(64, device="cuda")
            side = torch.cuda.Stream()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=side):
                y = x * 2
                z = torch.rand(64, device="cuda")
            given = []
            for i in range(2):
                x.fill_(i)
                graph.replay()
                given.append((y.sum().item(), z.sum().item()))
            return given

        from forked import MODES, forked

        for mode in MODES:
            ((first, one), (second, other)), findings = forked(run, f"2:{mode}")
            self.assertEqual((first, second, findings), (0, 128, []))
            self.assertNotEqual(one, other)

    def test_work_of_several_streams_and_loaders_is_ordered_by_pytorch(self):
        def run():
            import torch

            x = torch.randn(8, 8, device="cuda", requires_grad=True)
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                y = (x @ x).relu()
            torch.cuda.current_stream().wait_stream(side)
            y.sum().backward()
            data = torch.utils.data.TensorDataset(torch.arange(64.0))
            loader = torch.utils.data.DataLoader(data, batch_size=16, num_workers=2,
                                                 pin_memory=True)
            total = sum(batch.cuda(non_blocking=True).sum() for batch, in loader)
            return total.item(), x.grad.isfinite().all().item()

        from forked import forked

        for mode in ("eager", "lazy"):
            self.assertEqual(forked(run, f"2:{mode}"), ((2016, True), []))


    def test_work_on_two_devices_is_ordered_as_pytorch_orders_it(self):
        def run():
            import torch

            x = torch.arange(12.0).view(3, 4).cuda(0)
            y = x.half().t().to("cuda:1", torch.float32)
            z = torch.zeros(3, 4, device="cuda:1")
            z.copy_(x.flip(0))
            x.zero_()
            return y.tolist(), z.sum().item(), str(torch.rand(3, device="cuda:1").device)

        from forked import MODES, forked

        columns = [[0, 4, 8], [1, 5, 9], [2, 6, 10], [3, 7, 11]]
        for mode in MODES:
            found = forked(run, f"4:{mode}", PINLANE_CUDART_DEVICES="2")
            self.assertEqual(found, ((columns, 66, "cuda:1"), []))

    def test_an_embedding_in_float16_uses_rows(self):
        def run():
            import torch

            x = torch.nn.Embedding(5, 3, device="cuda", dtype=torch.float16)
            y = x(torch.tensor([1, 1], device="cuda")) @ torch.ones(3, 2, device="cuda").half()
            y.sum().backward()
            return x.weight.grad.tolist()

        from forked import forked

        self.assertEqual(forked(run), ([[0] * 3, [4] * 3, [0] * 3, [0] * 3, [0] * 3], []))


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


    def test_an_index_into_a_part_of_a_tensor_uses_no_other_part(self):
        def left(first, last):
            return lambda x, y, i: x[:, :512].index_select(0, i[first:last])

        def zero(rows, columns):
            return lambda x, y, i: x[rows, columns].zero_()

        every, few = slice(None), slice(20, 30)
        self.assert_no_race(left(0, 64), zero(every, slice(512, None)))
        self.assert_races(left(0, 64), zero(every, slice(511, None)))
        self.assert_no_race(left(0, 20), zero(few, slice(512)))
        self.assert_no_race(left(30, 64), zero(few, slice(512)))
        self.assert_races(left(0, 21), zero(few, slice(512)))
        odd = zero(every, slice(1, None, 2))
        self.assert_no_race(lambda x, y, i: x[:, ::2].index_select(0, i), odd)
        self.assert_no_race(lambda x, y, i: x[:, ::2].index_select(1, i), odd)
        self.assert_no_race(lambda x, y, i: x[:, ::2].gather(0, i[:, None].expand(64, 512)), odd)
        self.assert_races(lambda x, y, i: x[:, ::2].index_select(1, i), zero(63, 126))
        self.assert_no_race(lambda x, y, i: x[:, ::2].index_select(1, i), zero(every, 128))

        def pairs(x, y, i):
            return x.view(64, 32, 32)[i[:4], i[:4]]

        self.assert_no_race(pairs, lambda x, y, i: x.view(64, 32, 32)[3, 4].zero_())
        self.assert_races(pairs, lambda x, y, i: x.view(64, 32, 32)[3, 3, 31:].zero_())

    def test_indices_of_columns_use_the_columns(self):
        def columns(first, last):
            return lambda x, y, i: x.index_select(1, i[first:last])

        def write(x, y, index):
            x[:, 20:30].copy_(y[:, 20:30])

        self.assert_no_race(columns(0, 20), write)
        self.assert_no_race(columns(30, 64), write)
        self.assert_races(columns(29, 40), write)
        self.assert_no_race(lambda x, y, i: x.take(i[:20]), write)
        self.assert_races(lambda x, y, i: x.take(i[:21]), write)
        self.assert_no_race(lambda x, y, i: x[i[:4], i[:4]], write)
        self.assert_races(lambda x, y, i: x[i[:4], i[17:21]], write)
        self.assert_no_race(lambda x, y, i: x.scatter_add_(1, i[None, :20], y), write)
        self.assert_no_race(lambda x, y, i: x.scatter_add_(1, i[None, :20], y[:4]),
                            lambda x, y, i: y[1].zero_())
        self.assert_races(lambda x, y, i: x.scatter_add_(1, i[None, :20], y[:4]),
                          lambda x, y, i: y[0, 19:].zero_())
        self.assert_races(lambda x, y, i: x.index_put_((i < 2,), x.new_tensor(1).cpu()), write)
        self.assert_races(lambda x, y, i: x.scatter_(1, i[None, 20:], y), write)

    def test_of_very_many_elements_those_that_are_close_become_one_range(self):
        def every_second(x, y, i):
            import torch
            near = torch.arange(0, 32768, 2, device="cuda")  # 16384 ranges
            return x.take(torch.cat([near, i[:1] + 50_000]))

        def zero(first, last):
            return lambda x, y, i: x.view(-1)[first:last].zero_()

        self.assert_no_race(every_second, zero(32767, 50_000))
        self.assert_no_race(every_second, zero(50_001, 65536))
        self.assert_races(every_second, zero(32766, 50_000))
        self.assert_races(every_second, zero(0, 1))
        self.assert_races(every_second, zero(50_000, 50_001))


class Stops(unittest.TestCase):
    def test_torchscript_compiles_no_kernels(self):
        def run():
            import torch

            x = torch.ones(3, device="cuda")
            traced = torch.jit.trace(lambda x: x * 2 + 1, x)
            return [traced(x).sum().item() for _ in range(3)]

        from forked import forked

        self.assertEqual(forked(run), ([9, 9, 9], []))

    def test_torch_compile_stops_with_advice(self):
        def run():
            import torch

            try:
                torch.compile(lambda x: x * 2)(torch.ones(3, device="cuda"))
            except Exception as error:
                return str(error)

        from forked import forked

        self.assertIn("Use backend='aot_eager'", forked(run)[0])

    def test_errors_are_raised_at_the_call_in_the_words_of_a_gpu(self):
        def run():
            import torch

            x = torch.ones(2, device="cuda")
            given = []
            for wrong in (lambda: x + torch.ones(3, device="cuda"), lambda: x + torch.ones(2),
                          lambda: x[:1].expand(4).add_(1), lambda: x.copy_(x.new_ones(5))):
                try:
                    wrong()
                except RuntimeError as error:
                    given.append(str(error))
            return given

        from forked import forked

        texts, findings = forked(run, "3:lazy")
        for text, part in zip(texts, ("must match the size of tensor b (3)", "cuda:0 and cpu",
                                      "more than one element of the written-to tensor",
                                      "must match the existing size (5)"), strict=True):
            self.assertIn(part, text)
        self.assertEqual(findings, [])

    def test_a_kernel_that_sleeps_keeps_its_place_and_takes_no_time(self):
        def run():
            import torch

            side = torch.cuda.Stream()
            x = torch.zeros(8, device="cuda")
            with torch.cuda.stream(side):
                torch.cuda._sleep(2_000_000_000)
                is_waiting = not side.query()
                side.synchronize()
            torch.cuda._sleep(1)
            return is_waiting, x.sum().item()

        from forked import forked

        self.assertEqual(forked(run), ((False, 0), []))
        self.assertEqual(forked(run, "1:lazy"), ((True, 0), []))

    def test_what_runs_only_on_a_gpu_stops_by_its_name(self):
        def run():
            import torch

            table = torch.nn.Embedding(5, 3, sparse=True, device="cuda")
            loss = table(torch.tensor([1, 1], device="cuda")).sum()
            q = torch.ones(1, 1, 8, 8, device="cuda")
            given = []
            for call in (lambda: torch.ones(2, 2, device="cuda").to_sparse(), loss.backward,
                         lambda: table.weight.grad.coalesce(),
                         lambda: torch.nested.nested_tensor([q[0, 0]]).cuda().to_padded_tensor(0),
                         lambda: torch.ops.aten._scaled_dot_product_flash_attention(q, q, q)):
                try:
                    call()
                except RuntimeError as error:
                    given.append(str(error))
            return given

        from forked import forked

        texts, _ = forked(run)
        names = ("_to_sparse", "_coalesce of a sparse tensor",
                 "to_padded_tensor of a nested tensor",
                 "_scaled_dot_product_flash_attention")
        for text, name in zip(texts, names, strict=True):
            self.assertIn(f"aten::{name} runs only on a GPU", text)

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
