#!/usr/bin/env python3
"""Writes the first files of each corpus: small valid ones, and their like with one field spoiled.

    fuzz/make_corpus.py [FOLDER]     default fuzz/corpus
"""

import gzip
import struct
import sys
from pathlib import Path

ROOT = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "corpus")


def keep(target, name, data):
    folder = ROOT / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def npy(descr, shape, data, version=1, order="False"):
    text = f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}".encode()
    width = 2 if version == 1 else 4
    text += b" " * (-(len(text) + 8 + width + 1) % 64) + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + len(text).to_bytes(width, "little") + text + data


def idx(*shape):
    count = 1
    for size in shape:
        count *= size
    return bytes([0, 0, 8, len(shape)]) + b"".join(struct.pack(">I", s) for s in shape) + bytes(range(count))


def vectors():
    for choice, (name, code) in enumerate((("fvecs", "f"), ("bvecs", "B"), ("ivecs", "i"))):
        row = struct.pack(f"<i3{code}", 3, 1, 2, 3)
        keep("vecs_fuzz", name, bytes([choice]) + row + row)
    keep("vecs_fuzz", "dims_differ", b"\0" + struct.pack("<ifif", 1, 1, 2, 1))
    for choice, (name, code) in enumerate((("fbin", "f"), ("hbin", "e"), ("u8bin", "B"), ("i8bin", "b"), ("ibin", "i"), ("bf16bin", "H"))):
        keep("bin_fuzz", name, bytes([choice]) + struct.pack(f"<II6{code}", 2, 3, 1, 2, 3, 4, 5, 6))
    keep("bin_fuzz", "huge", b"\0" + struct.pack("<IIf", 2**32 - 1, 2**32 - 1, 1))
    for descr, size in (("<f4", 4), ("<f2", 2), ("|u1", 1), ("|i1", 1), ("<i4", 4), ("<i8", 8)):
        keep("npy_fuzz", descr[1:], npy(descr, (2, 3), bytes(6 * size)))
    keep("npy_fuzz", "bfloat16", npy("<V2", (2, 3), bytes(12)))
    keep("npy_fuzz", "v2", npy("<f4", "(6,)", bytes(24), 2))
    keep("npy_fuzz", "v3", npy("<i8", "(3L,)", bytes(24), 3))
    keep("npy_fuzz", "fortran", npy("<f4", (2, 3), bytes(24), 1, "True"))
    keep("npy_fuzz", "structured", npy("[('a', '<f4')]", (2, 3), bytes(24)))
    for name, shape in (("labels", (5,)), ("matrix", (2, 3)), ("images", (2, 2, 3))):
        keep("idx_fuzz", name, idx(*shape))
        keep("idx_gz_fuzz", name, b"\0" + gzip.compress(idx(*shape), mtime=0))
        keep("idx_gz_fuzz", name + "_unpacked", b"\1" + idx(*shape))


def results():
    truth = struct.pack("<II6I6f", 2, 3, 5, 0, 7, 2, 1, 2**32 - 1, 0, 1, 2, 0, 4, 5)
    ranges = struct.pack("<ii4i3i3f", 4, 3, 2, 0, 1, 0, 5, 0, 7, 0.5, 1.5, 2.5)
    ids = struct.pack("<II6i", 2, 3, 5, 0, 7, 2, 1, -1)
    keep("truth_fuzz", "truth", truth)
    keep("truth_fuzz", "range", ranges)
    keep("results_fuzz", "ibin", b"\0" + ids)
    keep("results_fuzz", "ivecs", b"\1" + struct.pack("<i2ii2i", 2, 5, 0, 2, 7, -1))
    keep("results_fuzz", "npy_i4", b"\2" + npy("<i4", (2, 3), ids[8:]))
    keep("results_fuzz", "npy_i8", b"\2" + npy("<i8", (1, 2), struct.pack("<qq", 5, 2**40)))
    for choice, name in ((3, "gtbin"), (4, "bin")):
        keep("results_fuzz", name + "_truth", bytes([choice]) + truth)
        keep("results_fuzz", name + "_range", bytes([choice]) + ranges)
    keep("results_fuzz", "bin_ids", b"\4" + ids)
    keep("list_fuzz", "two", b"# parts\na.fbin\r\n\nb.fbin\n")
    keep("list_fuzz", "mixed", b"a.fbin\nb.npy\n")
    keep("list_fuzz", "empty", b"# nothing\n")


def padded(data):
    return data + bytes(-len(data) % 64)


def container(schema, sections):
    """Checksums stay 0: an odd first byte makes the fuzzer fill them in."""
    body, entries, blocks = bytes(64), b"", 0
    for name, element, rows, cols, data in sections:
        entries += struct.pack("<16sQQQQI12x", name, len(body), len(data), rows, cols, element)
        blocks += -(-len(data) // (1 << 20))
        body = padded(body + data)
    table = len(body)
    whole = bytearray(body + entries + bytes(8 * blocks))
    struct.pack_into("<8sII16sIIQQ", whole, 0, b"\x89GKN\r\n\x1a\n", 1, len(sections), schema, 1, 0, table, len(whole))
    return b"\1" + bytes(whole)


def graphs():
    metadata = struct.pack("<QQ16sII", 3, 2, b"l2", 1, 4)
    ids = struct.pack("<6I", 1, 2, 0, 2, 0, 1)
    distances = struct.pack("<6f", 0.5, 1, 0.5, 0.75, 0.75, 1)
    sections = [(b"metadata", 1, 1, 40, metadata), (b"ids", 6, 3, 2, ids), (b"distances", 4, 3, 2, distances)]
    keep("knng_fuzz", "graph", container(b"knng", sections))
    keep("knng_fuzz", "one_section", container(b"test", sections[:1]))
    keep("knng_fuzz", "no_section", container(b"test", []))
    sections[1] = (b"ids", 6, 3, 2, struct.pack("<6I", 1, 3, 0, 2, 0, 2**32 - 1))
    keep("knng_fuzz", "id_out_of_range", container(b"knng", sections))


def indexes():
    metric, dtype = b"l2".ljust(16, b"\0"), b"u8".ljust(8, b"\0")
    about = lambda n, next_id: struct.pack("<3Q", n, 2, next_id) + metric + dtype + struct.pack("<Q", 0)
    lists = [(b"centroids", 4, 2, 2, struct.pack("<4f", 1, 2, 8, 9)), (b"begins", 7, 3, 1, struct.pack("<3q", 0, 2, 3)),
             (b"ids", 7, 3, 1, struct.pack("<3q", 0, 5, 2))]
    rows = (b"rows", 1, 3, 2, bytes([1, 2, 2, 2, 8, 9]))
    keep("index_fuzz", "flat", container(b"ivf_flat", [(b"about", 1, 1, 56, about(3, 6)), *lists, rows]))
    keep("index_fuzz", "next_id_too_small", container(b"ivf_flat", [(b"about", 1, 1, 56, about(3, 5)), *lists, rows]))
    words = (b"codewords", 4, 256, 2, struct.pack("<512f", *(i % 7 - 3 for i in range(512))))
    codes = (b"codes", 1, 2, 32, bytes(range(64)))
    coded = [(b"about", 1, 1, 56, about(3, 6)), lists[0], words, *lists[1:], codes]
    keep("index_fuzz", "codes", container(b"ivf_pq", coded))
    keep("index_fuzz", "codes_and_rows", container(b"ivf_pq", [*coded, rows]))
    halves_of_bytes = (b"codewords", 4, 32, 1, struct.pack("<32f", *(i % 16 - 8 for i in range(32))))  # 4 bits a part
    keep("index_fuzz", "codes_of_4_bits", container(b"ivf_pq", [*coded[:2], halves_of_bytes, *coded[3:]]))
    sixes = (b"codewords", 4, 256, 1, struct.pack("<256f", *(i % 9 - 4 for i in range(256))))  # 6 bits a part: two of four have no dimension
    keep("index_fuzz", "codes_of_6_bits", container(b"ivf_pq", [*coded[:2], sixes, *lists[1:], (b"codes", 1, 2, 96, bytes(range(192)))]))
    for bits, code_bytes in ((1, 1), (3, 3), (4, 1), (8, 2)):
        grid = (b"codes", 1, 2, 32 * (code_bytes + 8), b"\x3f" * (64 * (code_bytes + 8)))  # in any order the same factor
        keep("index_fuzz", "rabitq_%d" % bits, container(b"ivf_pq", [*coded[:2], (b"rabitq", 7, 1, 1, struct.pack("<q", bits)), *lists[1:], grid, rows]))
    reduced = [(b"centroids", 4, 2, 1, struct.pack("<2f", -3, 40)), *lists[1:], (b"mean", 4, 1, 2, struct.pack("<2f", 4, 4.5)), (b"step", 9, 1, 1, struct.pack("<d", 0.125))]
    directions = (b"directions", 4, 1, 2, struct.pack("<2f", 0.6, 0.8))
    quantized = [(b"about", 1, 1, 56, about(3, 6)), *reduced, directions, (b"codes", 2, 3, 1, struct.pack("<3b", -34, -30, 48)), rows]
    keep("index_fuzz", "quantized", container(b"ivf_sq", quantized))
    plain = [(b"about", 1, 1, 56, about(3, 6)), *lists, *reduced[3:], (b"codes", 2, 3, 2, struct.pack("<6b", -24, -20, -16, -20, 32, 36)), rows]
    turned = [(b"about", 1, 1, 56, about(3, 6)), (b"transform", 4, 1, 2, struct.pack("<2f", 0.6, 0.8)), (b"bias", 4, 1, 1, struct.pack("<f", -2)), reduced[0], *lists[1:]]
    keep("index_fuzz", "transformed", container(b"ivf_transformed", [*turned, (b"transformed", 4, 3, 1, struct.pack("<3f", 0.25, 1, 9)), rows]))
    words = (b"codewords", 4, 256, 1, struct.pack("<256f", *(i % 7 - 3 for i in range(256))))
    keep("index_fuzz", "transformed_codes", container(b"ivf_transformed", [*turned, words, codes]))
    keep("index_fuzz", "quantized_as_they_stand", container(b"ivf_sq", plain))
    cosine = lambda n, next_id: struct.pack("<3Q", n, 2, next_id) + b"cosine".ljust(16, b"\0") + dtype + struct.pack("<Q", 0)
    halves = (b"codes", 3, 3, 2, struct.pack("<6e", 0.5, 0.75, 0.6, 0.6, 0.7, 0.75))
    keep("index_fuzz", "halves_by_cosine", container(b"ivf_sq", [(b"about", 1, 1, 56, cosine(3, 6)), *lists, halves]))
    bfloats = (b"codes", 10, 3, 2, struct.pack("<6H", 0xC080, 0xC020, 0, 0x3F80, 0x4080, 0x4090))
    keep("index_fuzz", "bfloats", container(b"ivf_sq", [(b"about", 1, 1, 56, about(3, 6)), *lists, reduced[3], bfloats, rows]))
    keep("index_fuzz", "codes_by_cosine", container(b"ivf_pq", [(b"about", 1, 1, 56, cosine(3, 6)), *coded[1:], rows]))


def faiss_header(letters, cols, rows, metric=1):
    return letters + struct.pack("<iqqqBi", cols, rows, 1 << 20, 1 << 20, 1, metric)


def faiss_array(code, *values):
    return struct.pack("<Q%d%s" % (len(values), code), len(values), *values)


def faiss_flat(rows, metric=1):
    cols = len(rows[0])
    return faiss_header(b"IxF2" if metric else b"IxFI", cols, len(rows), metric) + faiss_array("f", *(x for row in rows for x in row))


def faiss_lists(code_bytes, lists, sparse=False):
    sizes = [x for i, ids in enumerate(lists) if ids for x in (i, len(ids))] if sparse else [len(ids) for ids in lists]
    whole = b"ilar" + struct.pack("<QQ", len(lists), code_bytes) + (b"sprs" if sparse else b"full") + faiss_array("Q", *sizes)
    return whole + b"".join(bytes(i % 60 for i in range(code_bytes * len(ids))) + struct.pack("<%dq" % len(ids), *ids) for ids in lists)


def faiss_scalar(kind, cols, code_bytes, trained=()):
    return struct.pack("<iifQQ", kind, 0, 0, cols, code_bytes) + faiss_array("f", *trained)


def faiss_ivf(letters, rows, more, lists, metric=1):
    return faiss_header(letters, 2, rows, metric) + struct.pack("<QQ", 2, 1) + faiss_flat([[0, 1], [1, 0]], metric) + b"\0" + faiss_array("q") + more + lists


def faiss():
    lists = [[0, 2], [1]]
    keep("faiss_fuzz", "flat", faiss_flat([[1, 2], [3, 4]]))
    keep("faiss_fuzz", "scalar", faiss_header(b"IxSQ", 2, 2) + faiss_scalar(0, 2, 2, (0, 1, 2, 3)) + faiss_array("B", 1, 2, 3, 4))
    keep("faiss_fuzz", "mapped", faiss_header(b"IxMp", 2, 2) + faiss_flat([[1, 2], [3, 4]]) + faiss_array("q", 9, 7))
    keep("faiss_fuzz", "ivf_flat", faiss_ivf(b"IwFl", 3, b"", faiss_lists(8, lists)))
    keep("faiss_fuzz", "ivf_sparse", faiss_ivf(b"IwFl", 1, b"", faiss_lists(8, [[], [5]], True), 0))
    for kind, code_bytes, trained in ((0, 2, 4), (1, 1, 4), (2, 2, 2), (3, 1, 2), (4, 4, 0), (5, 2, 0), (6, 2, 4), (7, 4, 0), (8, 2, 0)):
        more = faiss_scalar(kind, 2, code_bytes, (1,) * trained) + struct.pack("<QB", code_bytes, kind % 2)
        keep("faiss_fuzz", "ivf_scalar_%d" % kind, faiss_ivf(b"IwSq", 3, more, faiss_lists(code_bytes, lists)))
    product = struct.pack("<BQQQQ", 1, 1, 2, 1, 8) + faiss_array("f", *(i % 7 - 3 for i in range(512)))
    coded = faiss_ivf(b"IwPQ", 3, product, faiss_lists(1, lists))
    refined = faiss_header(b"IxRF", 2, 3) + coded + faiss_flat([[1, 2], [3, 4], [5, 6]]) + struct.pack("<f", 4)
    keep("faiss_fuzz", "ivf_codes", coded)
    keep("faiss_fuzz", "refined", refined)
    keep("faiss_fuzz", "refined_mapped", faiss_header(b"IxMp", 2, 3) + refined + faiss_array("q", 30, 10, 20))
    keep("faiss_fuzz", "refined_by_other", faiss_header(b"IxMp", 2, 3) + faiss_header(b"IxRF", 2, 3) + coded + faiss_header(b"IHNf", 2, 3))
    linear = b"LTra\0" + faiss_array("f", 1, 0, 0, 1) + faiss_array("f") + struct.pack("<iiB", 2, 2, 1)
    keep("faiss_fuzz", "transformed", faiss_header(b"IxPT", 2, 2) + struct.pack("<i", 1) + linear + faiss_flat([[1, 2], [3, 4]]))
    before = lambda what: faiss_header(b"IxPT", 2, 3) + struct.pack("<i", 2) + b"VCnt" + faiss_array("f", 1, 2) + struct.pack("<iiB", 2, 2, 1) + linear + what
    keep("faiss_fuzz", "transformed_lists", before(faiss_ivf(b"IwFl", 3, b"", faiss_lists(8, lists))))
    keep("faiss_fuzz", "transformed_codes", faiss_header(b"IxRF", 2, 3) + before(coded) + faiss_flat([[1, 2], [3, 4], [5, 6]]) + struct.pack("<f", 4))
    steps = faiss_scalar(2, 2, 2, (-128.5, 255)) + struct.pack("<QB", 2, 0)  # bytes by a step of 1 around 0
    keep("faiss_fuzz", "quantized", faiss_header(b"IxRF", 2, 3) + before(faiss_ivf(b"IwSq", 3, steps, faiss_lists(2, lists))) + faiss_flat([[1, 2], [3, 4], [5, 6]]) + struct.pack("<f", 4))
    halves = faiss_ivf(b"IwSq", 3, faiss_scalar(4, 2, 4) + struct.pack("<QB", 4, 0), faiss_lists(4, lists))
    keep("faiss_fuzz", "halves_of_floats", faiss_header(b"IxPT", 2, 3) + struct.pack("<i", 0) + halves)
    full = faiss_flat([[1, 2], [3, 4], [5, 6]]) + struct.pack("<f", 4)
    keep("faiss_fuzz", "refined_lists", faiss_header(b"IxRF", 2, 3) + faiss_ivf(b"IwFl", 3, b"", faiss_lists(8, lists)) + full)
    keep("faiss_fuzz", "refined_scalar", faiss_header(b"IxRF", 2, 3) + faiss_ivf(b"IwSq", 3, faiss_scalar(0, 2, 2, (0, 1, 2, 3)) + struct.pack("<QB", 2, 0), faiss_lists(2, lists)) + full)
    keep("faiss_fuzz", "other", faiss_header(b"IHNf", 2, 2))


vectors()
results()
graphs()
indexes()
faiss()
