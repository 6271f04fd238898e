"""Compares each operator of PyTorch's own list of samples with its results on the CPU.

    python python/tests/op_infos.py [DTYPE] [NAME ...]

The process needs pinlane's libcudart.so (LD_PRELOAD). It prints the operators that are refused and
those that are wrong, and counts. The samples are those of float32, or of another type: two of each
operator.
"""

import collections
import itertools
import sys
import types
import unittest
import warnings

import torch

from pinlane import operators

SAMPLES = 2
# What cannot be compared in this way.
NOT_COMPARABLE = {
    "as_strided.partial_views": "a copy of the sample is no view",
    "tensor_split": "its sections must be on the CPU",
}
# Their results are random, or uninitialized memory.
RANDOM = ("rand", "bernoulli", "multinomial", "normal", "dropout", "uniform", "exponential",
          "geometric", "cauchy", "log_normal", "empty", "rrelu", "fractional_max_pool", "new_empty",
          "resize_", "svd_lowrank", "pca_lowrank", "multi_head_attention")


def samples_of_pytorch():
    try:
        import expecttest  # noqa: F401
    except ImportError:  # PyTorch's list imports it, and does not use it
        stub = types.ModuleType("expecttest")
        stub.TestCase = unittest.TestCase
        stub.assert_expected_inline = None
        sys.modules["expecttest"] = stub
    from torch.testing._internal.common_methods_invocations import op_db

    return op_db


def moved(value, device):
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided or value.is_contiguous():
            return value.detach().to(device)
        made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)
        return value.detach().to(device) if 0 in value.stride() else made.copy_(value.detach())
    if isinstance(value, torch.device):
        return torch.device(device)
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(moved(v, device) for v in value)
    if isinstance(value, dict):
        return {k: "cuda" if k == "device" and v is not None and device == "cuda"
                else moved(v, device) for k, v in value.items()}
    return value


def flat(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return list(itertools.chain.from_iterable(map(flat, value)))
    return [value]


def strided(tensor):
    return tensor.layout == torch.strided


def same(one, other, is_statistic=False):
    one, other = flat(one), flat(other)
    if len(one) != len(other):
        return f"{len(one)} results, and {len(other)} on the CPU"
    for a, b in zip(one, other):
        if not isinstance(b, torch.Tensor):
            if not isinstance(b, torch.Generator) and a != b and not (a != a and b != b):
                return f"{a}, and {b} on the CPU"
            continue
        a = a.detach().cpu()
        if b.numel() == 0 and is_statistic:
            continue  # a GPU's have sizes and no values
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"{a.dtype}{list(a.shape)}, and {b.dtype}{list(b.shape)} on the CPU"
        try:
            small = torch.finfo(b.dtype).eps > 1e-4 if b.is_floating_point() else False
            rtol, atol = (2e-2, 2e-2) if small else (1e-4, 5e-5)
            torch.testing.assert_close(a, b.detach(), rtol=rtol, atol=atol, equal_nan=True)
        except AssertionError as error:
            return str(error).replace("\n", " ")[:200]
    return None


def gradients(op, given, device):
    value, args, kwargs = moved(given, device)
    leaves = [t for t in flat((value, args, kwargs)) if isinstance(t, torch.Tensor)
              and (t.is_floating_point() or t.is_complex())]
    for leaf in leaves:
        leaf.requires_grad_(True)
    results = [t for t in flat(op(value, *args, **kwargs))
               if isinstance(t, torch.Tensor) and t.requires_grad and t.numel()]
    total = sum(t.abs().sum() * (i + 1) for i, t in enumerate(results))
    if not results:
        return []
    return torch.autograd.grad(total, leaves, allow_unused=True)


def same_gradients(op, given):
    try:
        expected = gradients(op, given, "cpu")
    except Exception:
        return None  # this sample has none
    found = gradients(op, given, "cuda")
    torch.cuda.synchronize()
    operators.load().raise_failure()
    return same([g for g in found if g is not None], [g for g in expected if g is not None])


def same_in_place(op, given):
    """Compares the form that writes to its first argument."""
    results = []
    for device in ("cpu", "cuda"):
        value, args, kwargs = moved(given, device)
        if not isinstance(value, torch.Tensor):
            return None
        value = value.clone()
        torch.manual_seed(0)
        try:
            op.inplace_variant(value, *args, **kwargs)
        except Exception as error:
            if device == "cpu":
                return None  # this sample has none
            return f"in place: {type(error).__name__}: {error}"
        if device == "cpu" and value.shape != given[0].shape:
            return None  # an odd one, which is refused
        results.append(value)
    torch.cuda.synchronize()
    operators.load().raise_failure()
    return same(results[1], results[0])


def outcome(op, sample):
    """("pass" or "refused" or "wrong" or "skip", why)"""
    given = (sample.input, sample.args, sample.kwargs)
    first = flat(given)
    if not all(strided(t) for t in first if isinstance(t, torch.Tensor)):
        return "skip", "sparse"
    try:
        value, args, kwargs = moved(given, "cpu")
        torch.manual_seed(0)
        expected = op(value, *args, **kwargs)
    except Exception as error:
        return "skip", f"the CPU fails: {error}"
    try:
        value, args, kwargs = moved(given, "cuda")
        torch.manual_seed(0)
        found = op(value, *args, **kwargs)
        torch.cuda.synchronize()
        operators.load().raise_failure()
    except Exception as error:
        text = str(error).splitlines()[0] if str(error) else repr(error)
        refused = "only on a GPU" in text
        if "from the 'CUDA' backend" in text:
            return "skip", "PyTorch has no kernel for CUDA"
        return ("refused" if refused else "wrong"), f"{type(error).__name__}: {text[:200]}"
    if any(part in op.name for part in RANDOM) or sample.kwargs.get("dropout_p"):
        return "pass", "runs"
    try:
        why = same(found, expected, "batch_norm" in op.name)
        if not why and op.supports_autograd:
            why = same_gradients(op, given)
        if not why and op.inplace_variant:
            why = same_in_place(op, given)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        if "only on a GPU" in why:
            return "refused", why.splitlines()[0]
    return ("wrong", why) if why else ("pass", "")


def compare(names=(), shown=sys.stdout, dtype=torch.float32):
    """Counts by outcome, and the names with a reason."""
    found = collections.defaultdict(dict)
    for op in samples_of_pytorch():
        if names and op.name not in names:
            continue
        name = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
        if dtype not in op.dtypesIfCUDA or name in NOT_COMPARABLE:
            found["skip"][name] = NOT_COMPARABLE.get(name, "no samples of this type")
            continue
        outcomes = []
        try:
            for sample in itertools.islice(
                    op.sample_inputs("cpu", dtype, requires_grad=False), SAMPLES):
                outcomes.append(outcome(op, sample))
                if outcomes[-1][0] == "pass" and not name.startswith("as_strided"):
                    outcomes.append(outcome(op, sample.noncontiguous()))
        except Exception as error:
            outcomes.append(("skip", f"no samples: {error}"))
        for kind in ("wrong", "refused", "pass", "skip"):
            reasons = [why for k, why in outcomes if k == kind]
            if reasons:
                found[kind][name] = reasons[0]
                break
        else:
            found["skip"][name] = "no samples"
        if kind in ("wrong", "refused"):
            print(f"{kind}: {name}: {found[kind][name]}", file=shown, flush=True)
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    operators.load(quiet=False)
    names = sys.argv[1:]
    dtype = getattr(torch, names.pop(0)) if names and hasattr(torch, names[0]) else torch.float32
    found = compare(names, dtype=dtype)
    print(", ".join(f"{kind} {len(found[kind])}" for kind in ("pass", "refused", "wrong", "skip")))
    print("skipped:", "; ".join(f"{n}: {str(w)[:60]}" for n, w in found["skip"].items()))
    sys.exit(bool(found["wrong"]))
