#!/usr/bin/env python3
"""What PyTorch takes for the same work on the same GPU: topk, cdist and matmul + topk. Medians of CUDA events.

    bench/gpu/torch_peer.py OUT.json
"""

import json
import statistics
import sys

try:
    import torch
except ImportError:
    raise SystemExit(print("PyTorch is not on this machine"))


def median_ms(work, repeats=7):
    times = []
    for i in range(-2, repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        end.synchronize()
        if i >= 0:
            times.append(begin.elapsed_time(end))
    return statistics.median(times)


def l2_by_matmul(queries, base, base_norms, k, block=262144):
    """The usual way: the matrix of distances, a block of the base at a time, then topk."""
    best = None
    for first in range(0, len(base), block):
        part = base[first : first + block]
        scores = torch.addmm(base_norms[first : first + block], queries, part.T, alpha=-2)
        found = scores.topk(k, largest=False, sorted=True)
        if best is None:
            best = found.values
        else:
            best = torch.cat([best, found.values], 1).topk(k, largest=False, sorted=True).values
    return best


def main():
    rows = []

    def report(work, ms):
        print(f"{work:58s} {ms:10.3f} ms", flush=True)
        rows.append({"work": work, "ms": ms})
        write(False)

    def write(finished):
        with open(sys.argv[1], "w") as file:
            json.dump({"torch": torch.__version__, "device": torch.cuda.get_device_name(), "finished": finished, "rows": rows}, file, indent=1)

    torch.manual_seed(1)
    values = torch.rand(10000, 128000, device="cuda")
    for k in (10, 32, 100, 256, 1000, 2048):
        report(f"torch topk 10000 x 128000, k = {k}", median_ms(lambda: values.topk(k, largest=False), 3))
    del values
    base = torch.rand(1000000, 128, device="cuda")
    queries = torch.rand(10000, 128, device="cuda")
    for name, dtype in (("f32", torch.float32), ("bf16", torch.bfloat16)):
        b, q = base.to(dtype), queries.to(dtype)
        norms = (b.float() ** 2).sum(1).to(dtype)
        for k in (10, 100, 1000):
            report(f"torch matmul + topk 10000 in 1M x 128 {name}, k = {k}", median_ms(lambda: l2_by_matmul(q, b, norms, k), 3))
    one = queries[:1]
    report("torch cdist + topk 1 in 1M x 128 f32, k = 10", median_ms(lambda: torch.cdist(one, base).topk(10, largest=False), 20))
    sample = base[:262144, :16].contiguous()
    few = queries[:1000, :16].contiguous()
    report("torch cdist p = 1, 1000 in 262144 x 16, k = 1", median_ms(lambda: torch.cdist(few, sample, p=1).min(1), 5))
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    ms = median_ms(lambda: a @ a)
    report("torch bf16 matmul 8192^3 (matrix rate)", ms)
    rows.append({"work": "matrix rate", "tflops": 2 * 8192**3 / ms * 1e-9})
    write(True)


if __name__ == "__main__":
    main()
