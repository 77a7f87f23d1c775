#!/usr/bin/env python3
"""Plants one fault at a time in the kernels and asks whether the tests on the emulated GPU notice. Exit code 1: one survived
that no line below explains.

    tools/mutate_kernels.py [--jobs 2] [NAME ...]     NAME: part of a mutant's name; default: all
    tools/mutate_kernels.py --check                   only whether what each mutant changes stands where it says

Each mutant is built and run in a copy of the tree (build/mutants): first with tiny tiles, under a random schedule; what
survives there, under the thread sanitizer, which sees races whatever the schedule. Takes about half a minute a mutant.

To add one: a line in MUTANTS: name, file, what stands there (once, or the first time), what shall stand there.
"""

import argparse
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GPU = "src/ops/gpu/"
SYNC = "__syncthreads();"

MUTANTS = [
    ("queue settles one too late", "warp_select.cuh", "held_ == T ||", "held_ > T ||"),
    ("merge without a step", "warp_select.cuh", "order_lanes<8>(key);\n  order_lanes<4>(key);\n  order_lanes<2>(key);\n  order_lanes<1>(key);\n}\n\n/// Sorts a register",
     "order_lanes<4>(key);\n  order_lanes<2>(key);\n  order_lanes<1>(key);\n}\n\n/// Sorts a register"),
    ("wrong lane holds the k-th", "warp_select.cuh", "(k_ - 1) % 32", "k_ % 32"),
    ("wrong register holds the k-th", "warp_select.cuh", "i * 32 < k_", "i * 32 <= k_"),
    ("sort exchanges wrong lanes", "warp_select.cuh", "order_lanes<15>(key);", "order_lanes<7>(key);"),
    ("last candidates are not taken", "select_rows.cu", "best.take(key, last && i == n - 1)", "best.take(key, false)"),
    ("lengths of rows are ignored", "select_rows.cu", "lengths ? min(std::int64_t{__ldg(lengths + item / parts)}, columns) : columns", "columns"),
    ("bucket of the k-th off by one", "block_select.cuh", "through - own < k)", "through - own <= k)"),
    ("keys before the bucket are forgotten", "block_select.cuh", "    k -= counts.before;\n", ""),
    ("bins are counted before all are zero", "block_select.cuh", "counts.bins[i] = 0;\n    " + SYNC, "counts.bins[i] = 0;"),
    ("digit is read before it is written", "block_select.cuh", SYNC + "\n    known |=", "known |="),
    ("compaction overwrites unread keys", "block_select.cuh", "no_neighbor;\n    }\n    " + SYNC, "no_neighbor;\n    }"),
    ("sort pairs wrong ends", "block_select.cuh", "begin + 2 * run - 1 - at", "begin + run + at"),
    ("sort without a barrier", "block_select.cuh", "order_places(low, low + step);\n      }\n      " + SYNC, "order_places(low, low + step);\n      }"),
    ("runs are merged before all are sorted", "block_select.cuh", "if (at < count) keys[at] = own[i];\n    }\n  }\n  " + SYNC, "if (at < count) keys[at] = own[i];\n    }\n  }"),
    ("pairs across runs are left out", "block_select.cuh", "step >= n * 32; step /= 2", "step > n * 32; step /= 2"),
    ("bisection: one too few within", "block_select.cuh", "if (within < k) {", "if (within < k - 1) {"),
    ("bisection: a sum is emptied while it is read", "block_select.cuh", "sums[turn == 2 ? 0 : turn + 1] = 0;", "sums[turn == 0 ? 2 : turn - 1] = 0;"),
    ("bisection: a sum is read before all have added", "block_select.cuh", "turn + 1] = 0;\n    " + SYNC, "turn + 1] = 0;"),
    ("ties are kept though they are too many", "block_select.cuh", "if (bound.within <= most) {", "if (true) {"),
    ("what is kept excludes the bound's own value", "block_select.cuh", "value_bits(key) <= bound.bits", "value_bits(key) < bound.bits"),
    ("sum leaves out half the lanes", "canonical.cuh", "int step = lanes / 2; step > 0; step /= 2) value", "int step = lanes / 4; step > 0; step /= 2) value"),
    ("a lane leaves out half its sums", "canonical.cuh", "int half = own / 2; half > 0;", "int half = own / 4; half > 0;"),
    ("a lane's sums are in the wrong order", "canonical.cuh", "(turn % 2 * 2 + turn / 2) * lanes", "turn * lanes"),
    ("offsets of rows have 32 bits", "canonical.cuh", "base.data + row * base.pitch", "base.data + static_cast<unsigned>(row * base.pitch)"),
    ("offsets of encoded rows have 32 bits", "product_codes.cu", "const std::byte* x = base.data + row * base.pitch;", "const std::byte* x = base.data + static_cast<unsigned>(row * base.pitch);"),
    ("offsets of rows of differences have 32 bits", "scan_differences.cu", "job.base.data + row * job.base.pitch", "job.base.data + static_cast<unsigned>(row * job.base.pitch)"),
    ("offsets of streamed rows have 32 bits", "stream_rows.cu", "min(at + r * quarters, count - 1))} * job.base.pitch;", "min(at + r * quarters, count - 1))} * job.base.pitch % (std::int64_t{1} << 32);"),
    ("offsets of rows of values have 32 bits", "select_rows.cu", "values + item / parts * stride", "values + static_cast<unsigned>(item / parts * stride)"),
    ("numbers of rows go through floats", "canonical.cuh", "no_neighbor : pack(key, row);", "no_neighbor : pack(key, static_cast<LocalRow>(static_cast<float>(row)));"),
    ("far rows of the base are neighbours", "canonical.cuh", "const int marks = queries.far[query] | base.far[row];", "const int marks = queries.far[query];"),
    ("lanes' largest differences are summed", "canonical.cuh", "return fmax(a, b); }", "return a + b; }"),
    ("one of the terms of jaccard is left out", "canonical.cuh", "either += bits(a_bits | b_bits);", "either += bits(a_bits);"),
    ("overflow by one goes unnoticed", "survivors.cu", "overflowed = count > lists.pitch;", "overflowed = count > lists.pitch + 1;"),
    ("overflow goes unnoticed", "survivors.cu", "overflowed = count > lists.pitch;", "overflowed = false;"),
    ("euclidean limit is not squared", "limits.cuh", "case Metric::euclidean: return most * most;", "case Metric::euclidean: return most;"),
    ("hellinger limit is halved", "limits.cuh", "return 2 * most * most;", "return most * most;"),
    ("survivor is written before all lanes read it", "survivors.cu", "      __syncwarp(group_mask<quarter>());  // all lanes have read\n", ""),
    ("survivor keeps its row for a key", "survivors.cu", "keys[i] = neighbor < bound ? neighbor : no_neighbor;", "if (neighbor < bound) keys[i] = neighbor;"),
    ("count of survivors is not reset", "survivors.cu", "      lists.counts[query] = list.count;\n", ""),
    ("lists of few go unnoticed", "survivors.cu", "if (threadIdx.x == 0 && within < lists.k)", "if (threadIdx.x == 0 && held >= lists.k && within < lists.k)"),
    ("lists behind what a sample told go unnoticed", "survivors.cu", "keys[i] <= assumed[query]", "keys[i] <= (assumed[query] | no_neighbor)"),
    ("lists that a sample misled stay", "gpu_rows.cpp", "if (unproven.download().front() == 0) return;", "if (unproven.download().front() < 99) return;"),
    ("parts of a split leave a place out", "survivors.cu", "job.places.begin + places * part / splits,",
     "job.places.begin + places * part / splits + (part > 0),"),
    ("found is read before it is counted", "survivors.cu", "team.sync();\n      const unsigned found", "const unsigned found"),
    ("lists of a split are not merged", "survivors.cu", "if (splits > 1) block_keep", "if (splits > 99999) block_keep"),
    ("runs of labels overlap", "sum_by_label.cu", "i < run_begins[run + 1]; ++i", "i <= run_begins[run + 1] - (run % 2); ++i"),
    ("self is its own neighbour", "append.cuh", "first_self + own == row", "first_self == row"),
    ("buffer takes one too many", "append.cuh", "if (slot < lists.pitch)", "if (slot <= lists.pitch)"),
    ("unlocked counter", "append.cuh", "atomicAdd(&lists.counts[query], 1u)", "lists.counts[query]++"),
    ("bound without the row's error", "product_codes.cu", "(norms.error + g * norms.code)", "(g * norms.code)"),
    ("bound without the row's norm", "product_codes.cu", "(1 + 2 * g) * (norms.code + norms.error)", "norms.error * g"),
    ("bound without the query's error", "product_codes.cu", "bounds[1] = bf16_above(norms.error);", "bounds[1] = 0;"),
    ("query's scale misses its limit", "product_codes.cu", "bf16_nearest(own_scale)", "bf16_nearest(1.0)"),
    ("norm of a byte query counted twice", "product_codes.cu", "{squared / 2 - (squared", "{squared - (squared"),
    ("missing wait for a tile's copy", "scan_products.cu", "++tile) {\n    simt::copy_async_wait<stages - 2>();", "++tile) {\n    simt::copy_async_wait<stages - 1>();"),
    ("missing wait for a slab's copy", "scan_products.cu", "if (slab > 0) {\n        simt::copy_async_wait<stages - 2>();", "if (slab > 0) {\n        simt::copy_async_wait<stages - 1>();"),
    ("rows have the facts of other tiles", "scan_products.cu", "shared.bias[tile % 2], shared", "shared.bias[(tile + 1) % 2], shared"),
    ("facts of rows come too late", "scan_products.cu", "    if (tile + 1 < last_tile) keep_facts(tile + 1);\n", ""),
    ("products are read before they are there", "scan_products.cu", "    products.wait(sums.of);\n", ""),
    ("pieces lie in the order of their numbers", "scan_products.cu", "return simt::swizzled(row, piece);", "return row * row_pitch + piece * 16;"),
    ("second warpgroup has the first one's queries", "scan_products.cu", "warp_id() / 4 * simt::group_rows_a", "0 * simt::group_rows_a"),
    ("stage is refilled while it is read", "scan_products.cu", "        Engine::publish();\n        " + SYNC + "\n", "        Engine::publish();\n"),
    ("pairs that find no room are forgotten", "scan_products.cu", "            take(query, first_place + row, bits);\n", ""),
    ("pairs for both that find no room are forgotten", "scan_products.cu", "overflow(lists, query & other_list ? begin + first_place + row : first_query + query);", ""),
    ("pairs are overwritten before all are taken", "scan_products.cu", "      " + SYNC + "  // all have read\n", ""),
    ("the last pairs are not taken", "scan_products.cu", "  " + SYNC + "\n  shared.found.take_all(thread, Tile::threads, take);\n", ""),
    ("fragments swapped", "scan_products.cu", "a[f][1] = word_at(at + 8 * query_pitch);", "a[f][1] = word_at(at + 16);"),
    ("wrong column of a sum", "scan_sums.cuh", "s / sums_a_row * 8 + s % 2;", "s / sums_a_row * 8 + s % 2 * 2;"),
    ("rows past the end are let through", "scan_products.cu", "return place >= end || (both", "return (both"),
    ("survivors have the sum of another pair", "scan_sums.cuh", "if (static_cast<unsigned>(t) != s) continue;", "if (static_cast<unsigned>(t) < s) continue;"),
    ("limits of wrong queries", "scan_products.cu", "* 16 + half * 8 + lane_id() / 4;", "* 16 + half * 4 + lane_id() / 4;"),
    ("queries are always at the first step", "scan_products.cu", "(resident ? slab : stage) * Engine::query_step(resident)", "(resident ? 0 : stage) * Engine::query_step(resident)"),
    ("one stage for all slabs", "scan_products.cu", "      stage = stage + 1 < stages ? stage + 1 : 0;", "      stage = 0;"),
    ("streamed: a stage is refilled before all have multiplied", "scan_streamed.cu", "init(warps);", "init(warps - 1);"),
    ("streamed: a stage is refilled while it is read", "scan_streamed.cu", "        shared.empty[stage].wait(round ^ 1);\n", ""),
    ("streamed: a stage is released while lanes read it", "scan_streamed.cu", "    __syncwarp();  // all have read\n    if (lane_id() < slabs) shared.empty", "    if (lane_id() < slabs) shared.empty"),
    ("streamed: slabs are not waited for", "scan_streamed.cu", "      shared.full[stage].wait(round);\n", ""),
    ("streamed: queries are not waited for", "scan_streamed.cu", "  shared.queries.wait(0);\n", ""),
    ("streamed: rounds are not told apart", "scan_streamed.cu", "      round ^= 1;\n", ""),
    ("streamed: products are read before they are there", "scan_streamed.cu", "    products.wait(sums.of);\n", ""),
    ("streamed: all warpgroups have the first one's queries", "scan_streamed.cu", "own_first % simt", "0 % simt"),
    ("streamed: the upper half has the lower one's queries", "scan_streamed.cu", "own_first / simt", "0 / simt"),
    ("streamed: every slab is the first", "scan_streamed.cu", "row_map, slab * simt", "row_map, 0 * simt"),
    ("streamed: sums begin at another row's shift", "scan_streamed.cu", "i % 2 ? shift.y : shift.x", "i / 2 ? shift.y : shift.x"),
    ("streamed: sums begin anew with each step", "scan_streamed.cu", "whole || step > 0);", "whole);"),
    ("streamed: sums forget their shift", "scan_streamed.cu", "whole || step > 0);", "step > 0);"),
    ("streamed: one slab's stage is not released", "scan_streamed.cu", "if (lane_id() < slabs) shared.empty", "if (lane_id() + 1 < slabs || slabs == 1) shared.empty"),
    ("streamed: counts are read before all have counted", "scan_streamed.cu", "      __syncwarp();  // all have counted\n", ""),
    ("streamed: shifts stay in what is found", "scan_streamed.cu", "    if constexpr (whole) bits -= ", "    if constexpr (false) bits -= "),
    ("streamed: shifts come with the last slab", "scan_streamed.cu", "whole && slab == 0;", "whole && slab + 1 == slabs;"),
    ("streamed: shifts of one stage for all", "scan_streamed.cu", "simt::copy_words(shifts + stage * tile_rows", "simt::copy_words(shifts"),
    ("streamed: places of the scan before come again", "scan_streamed.cu", "return place < job.places.begin || ", "return "),
    ("streamed: queries past the end are looked at", "scan_streamed.cu", " || first_query + query >= job.end_list;", ";"),
    ("streamed: rows past the end are looked at", "scan_streamed.cu", "place >= end || ", ""),
    ("streamed: pairs that find no room are forgotten", "scan_streamed.cu", "again = __any_sync(~0u, full);", "again = __any_sync(~0u, full) && false;"),
    ("streamed: pairs that found room come again", "scan_streamed.cu", "kept += !full;", "kept += 0;"),
    ("streamed: pairs are overwritten before all are taken", "scan_streamed.cu", "        __syncwarp();  // all have read\n", ""),
    ("streamed: the last pairs are not taken", "scan_streamed.cu", " || tile + 1 == last_tile) {", ") {"),
    ("streamed: limits are rounded too far up", "scan_sums.cuh", "__float2int_ru(limit);", "__float2int_ru(limit) + 1;"),
    ("threads have wrong rows", "scan_differences.cu", "thread / threads_q * side", "thread % threads_q * side"),
    ("slab is overwritten while it is read", "scan_differences.cu", "      }\n      " + SYNC + "\n    }\n    GIGAKNN", "      }\n    }\n    GIGAKNN"),
    ("intersection counts the union", "scan_differences.cu", "both += __popc(x & y);", "both += __popc(x | y);"),
    ("dimensions past the end count", "scan_differences.cu", "const bool there = first + dim < dims;", "const bool there = true;"),
    ("tiny terms have no slack", "limits.cuh", "(1 + rule.error) + rule.slack)", "(1 + rule.error))"),
    ("limit is not widened by the error", "limits.cuh", "(1 + rule.error)", "(1 - 64 * rule.error)"),
    ("a key's most leaves out the doubt", "limits.cuh", "number - doubt_of_product(job, query, place)", "number"),
    ("a key's most leaves out the error", "limits.cuh", "(1 + job.rule.error)", "(1 - job.rule.error)"),
    ("doubt leaves out the norms", "limits.cuh", "doubt += value_of_bf16(x[2]) * h_doubt(h, g);", ""),
    ("doubt leaves out the rounding", "limits.cuh", "(2 + g) * (value", "0 * (value"),
    ("other side has the wrong norm", "limits.cuh", "+ h_y_above - h_x_below", "+ h_x_below - h_y_above"),
    ("doubtful entries are dropped", "survivor_lists.cuh", "&& !(doubtful && passes(form, number, limit))) continue;", ") continue;"),
    ("pruning overwrites unread entries", "survivor_lists.cuh", "best_number(form);\n    team.sync();", "best_number(form);"),
    ("list is read before it is pruned", "survivor_lists.cuh", "  team.sync();\n  list.count = team.found();", "  list.count = team.found();"),
    ("keys stay open", "survivor_lists.cuh", "if (computed || !(last || list.count > k + (pitch - k) / 8)) return;", "return;"),
    ("numbers do not follow their keys", "survivor_lists.cuh", "    if (list.numbers) list.numbers[slot] = number;\n", ""),
    ("places are taken for rows", "survivors.cu", "const LocalRow row = job.places.order[place];\n          const bool none", "const LocalRow row = place;\n          const bool none"),
    ("stream: sums of differences are taken for exact", "stream_rows.cu", "of_differences(job.metric, sum, share, slack)", "of_differences(job.metric, sum, 0, slack)"),
    ("stream: products are taken for exact", "stream_rows.cu", "const double doubt = share * norms + slack;", "const double doubt = 0 * (share * norms + slack);"),
    ("stream: terms that vanish are forgotten", "stream_rows.cu", "of_differences(job.metric, sum, share, slack)", "of_differences(job.metric, sum, share, 0)"),
    ("stream: sums that overflow are taken for far", "stream_rows.cu", "fmin(double{sum}, largest_float) * (1 - share)", "double{sum} * (1 - share)"),
    ("stream: terms of products that vanish are forgotten", "stream_rows.cu", "const double doubt = share * norms + slack;", "const double doubt = share * norms + 0 * slack;"),
    ("stream: products that overflow are told", "stream_rows.cu", "if (!(fabsf(dot) <= static_cast<float>(largest_float) && norms <= static_cast<float>(largest_float))) return not_told();", ""),
    ("stream: cosines of small norms are told", "stream_rows.cu", "if (!(x_norm >= least_told_norm && y_norm >= least_told_norm)) return not_told();", ""),
    ("stream: cosines of two small norms alone are not told", "stream_rows.cu", "x_norm >= least_told_norm && y_norm >= least_told_norm", "norms >= least_told_norm * least_told_norm"),
    ("stream: cosines are taken for exact", "stream_rows.cu", "const double doubt = share * 1.01 + 0x1p-17;", "const double doubt = 0 * share;"),
    ("stream: upper ends are the lower", "stream_rows.cu", "sortable(key.high)", "sortable(key.low)"),
    ("stream: a row is its own neighbour for the bound", "stream_rows.cu", "const bool none = mark & far_row || is_self(job.first_self, own, row);", "const bool none = job.base.far[row] & far_row;"),
    ("stream: far rows bound the list", "stream_rows.cu", "const bool none = mark & far_row || is_self", "const bool none = is_self"),
    ("stream: equal values may not enter", "stream_rows.cu", "if (shared.low[place] <= limit)", "if (shared.low[place] < limit)"),
    ("stream: lanes have each other's rows", "stream_rows.cu", "return lane_id() % quarter / (quarter / n);", "return n - 1 - lane_id() % quarter / (quarter / n);"),
    ("stream: parts leave a row out", "stream_rows.cu", "(job.base.rows * part / splits); first < last", "(job.base.rows * part / splits + (part > 0)); first < last"),
    ("stream: a list is bounded before it is full", "stream_rows.cu", "if (list.count == lists.k) list.bound", "if (list.count > 0) list.bound"),
    ("stream: what found no room is lost", "stream_rows.cu", "done = stop;", "done = picks;"),
    ("stream: the last tile's intervals are overwritten", "stream_rows.cu", "      " + SYNC + "  // the tile is free\n", ""),
    ("stream: keys are sorted before all are there", "stream_rows.cu", "        " + SYNC + "\n        list.count = team.found();", "        list.count = team.found();"),
    ("lists of places are taken for rows'", "survivor_lists.cuh", "const std::int64_t own = query_row(job, query);", "const std::int64_t own = query;"),
    ("pairs come twice", "scan_products.cu", "(both && (place <= first_query + query || ", "(both && ("),
    ("other side is left out", "scan_sums.cuh", "if (near_other >> s & 1) keep", "if (false) keep"),
    ("other side has the query's limit", "scan_products.cu", "next_limit = lists.limits[place]", "next_limit = own.limits[0][0]"),
    ("differences have the sum of another pair", "scan_differences.cu", "if (i == s) sum", "if (i >= s) sum"),
    ("differences come twice", "scan_differences.cu", "(both && place <= query)", "(false)"),
    ("graph leaves out a place", "gpu_rows.cpp", "job.places = {order_.get(), first, places_};", "job.places = {order_.get(), first + 1, places_};"),
    ("graph leaves out a list", "gpu_rows.cpp", "job.first_list = job.end_list) {", "job.first_list = job.end_list + 1) {"),
    ("candidates beyond 32 are dropped", "warp_select.cuh", "waiting = __ballot_sync(~0u, waits && !seated);", "waiting = 0;"),
    ("buffer is read before all are seated", "warp_select.cuh", "      __syncwarp();  // all are seated\n", ""),
    ("buffer is refilled before all have read", "warp_select.cuh", "      __syncwarp();  // all have read\n", ""),
    ("lists of a team are read too early", "select_rows.cu", "        __syncthreads();\n      }\n      const unsigned begin", "      }\n      const unsigned begin"),
    ("lists of a team are written too early", "select_rows.cu", "    if (team > 1) __syncthreads();  // the lists are free\n", ""),
    ("parts of a row overlap", "select_rows.cu", "(item % parts + end) / parts", "(item % parts + 2 * end) / parts"),
    ("a full buffer goes unnoticed", "select_rows.cu", "full = __syncthreads_or(waiting != 0);", "full = __syncthreads_or(waiting != 0) && false;"),
    ("a full buffer is written beyond", "select_rows.cu", "entering && slot < capacity;", "entering && slot <= capacity;"),
    ("what found no room is not looked at again", "select_rows.cu", "return entering;", "return entering & 1;"),
    ("ties are lost when a buffer fills", "select_rows.cu", "limit = Row::limit_of(bound, true);\n    }", "limit = Row::limit_of(bound, false);\n    }"),
    ("a sample that misled is believed", "select_rows.cu", "sampled && held < k;", "false;"),
    ("a sample's bound is taken for a chunk's", "select_rows.cu", "if (!sampled) limit =", "limit ="),
    ("a sample's own value may not enter", "select_rows.cu", "auto limit = Row::limit_of(bound, true);", "auto limit = Row::limit_of(bound, false);"),
    ("what a misled row holds stays", "select_rows.cu", "base = 0;\n        if (threadIdx.x == 0) shared.kept = 0;", "base = 0;"),
    ("values beyond a row's ends are looked at", "select_rows.cu", "if (!is_whole(base)) {", "if (false) {"),
    ("limit of values is one too low", "select_rows.cu", "min(bits, 0xFFFFFFFEu) + unordered", "min(bits, 0xFFFFFFFEu) - 1 + unordered"),
    ("groups of unaligned rows begin too late", "select_rows.cu", "values = row + from - begin;", "values = row + from;"),
    ("a row's count is read before it is reset", "select_rows.cu", "if (threadIdx.x == 0) shared.kept = 0;\n    " + SYNC, "if (threadIdx.x == 0) shared.kept = 0;"),
    ("a row's count is reset too early", "select_rows.cu", SYNC + "  // all have read the count\n", ""),
    ("digits are told too early", "block_select.cuh", "counts.bins[counts.digit] == k;", "counts.bins[counts.digit] <= k + 1;"),
    ("digits are told from bins that are zeroed", "block_select.cuh", "are among the k smallest\n    " + SYNC, "are among the k smallest"),
    ("a lane's first value has no vote", "select_rows.cu", "any |= FloatRow::may_enter(values[i], limit)", "any |= i > 0 && FloatRow::may_enter(values[i], limit)"),
    ("codes: parts of 6 bits begin at a byte", "nearest_codes.cu", "entries[64 + (code >> 6 & 63)]", "entries[64 + (code >> 8 & 63)]"),
    ("codes: parts that straddle bytes end early", "nearest_codes.cu", "shift > 2 ? byte[block_rows] : 0", "0"),
    ("codes: planes count alike", "nearest_codes.cu", "static_cast<float>(1 << part % planes) * sum : sum", "sum : sum"),
    ("codes: planes are decoded alike", "nearest_codes.cu", "__fadd_rn(word + word, said)", "__fadd_rn(word, said)"),
    ("codes: numbers have no margin", "nearest_codes.cu", "squared : 0) - margin, 1}", "squared : 0), 1}"),
    ("codes: doubt leaves out the margin", "nearest_codes.cu", "queries.doubts[query] = 2 * margin;", "queries.doubts[query] = 0;"),
    ("codes: overflow is not thought of", "nearest_codes.cu", "reach * reach < 1e36 && ", ""),
    ("codes: reach leaves out the query", "nearest_codes.cu", "sqrt(squared) + __uint_as_float(rows.largest[0])", "__uint_as_float(*rows.largest)"),
    ("codes: norms leave out centroids", "nearest_codes.cu", "most + 2 * sqrt(centroid_squared)", "most + 0 * sqrt(centroid_squared)"),
    ("codes: far rows are found", "nearest_codes.cu", "if (!(squared < 1e300) || !usable(scale)) continue;", "if (!usable(scale)) continue;"),
    ("codes: any scale will do", "nearest_codes.cu", "if (!(squared < 1e300) || !usable(scale)) continue;", "if (!(squared < 1e300)) continue;"),
    ("codes: keys are not shifted", "nearest_codes.cu", "return __fadd_rn(key, shift);", "return key;"),
    ("codes: terms are not shifted", "nearest_codes.cu", "__double2float_rn(squared + scale.shift)", "__double2float_rn(squared)"),
    ("codes: sums lack their factor", "nearest_codes.cu", "__fmaf_rn(rows.factors[block * block_rows + row_of_lane()], sum, coarse)", "coarse + sum"),
    ("codes: rows are named after the bound", "nearest_codes.cu", "most + (PackedNeighbor{1} << 32)", "most"),
    ("codes: groups exchange wrong sums", "nearest_codes.cu", "simt::shfl_xor(sums[3], 16)", "simt::shfl_xor(sums[2], 16)"),
    ("codes: lanes have wrong rows", "nearest_codes.cu", "4 * (lane_id() % 8) + lane_id() / 8", "lane_id()"),
    ("codes: nibbles are swapped", "nearest_codes.cu", "part % 2 == 0 ? byte[0] & 15", "part % 2 == 1 ? byte[0] & 15"),
    ("codes: an entry has one part of two", "nearest_codes.cu", "product_with_word<kind>(rows, query, 2 * byte + 1, value >> 4)", "0"),
    ("codes: the table is read before it is made", "nearest_codes.cu", "    team.sync();  // the table is made\n", ""),
    ("codes: a full list goes unnoticed", "nearest_codes.cu", "if (last || room < block_rows) {", "if (last) {"),
    ("codes: found is changed before all have read", "nearest_codes.cu", "list.count = team.found();\n          team.sync();  // all have read\n", "list.count = team.found();\n"),
    ("codes: a mask is by row", "nearest_codes.cu", "queries.allowed[name / 64] >> (name % 64)", "queries.allowed[name / 64] >> (row % 64)"),
    ("codes: cells without rows are found", "nearest_codes.cu", "begins[middle] <= at)", "begins[middle] < at)"),
    ("codes: shares of a query overlap", "nearest_codes.cu", "for (int rank = static_cast<int>(i / query_count);", "for (int rank = 0;"),
    ("encoding: ties are not settled", "encode_products.cu", "if (count > 1) {", "if (count > 99) {"),
    ("encoding: no error is allowed for", "encode_products.cu", "least * (1 + 4 * error) + (part_dims + 8) * 0x1p-148", "least"),
    ("encoding: words past the end count", "encode_products.cu", "if (w * 32 + lane_id() < words) least", "least"),
    ("growth: a pair that one list wants is too far", "local_join.cu", "squared > memory.limits[i] && squared > memory.limits[j]", "squared > memory.limits[i] || squared > memory.limits[j]"),
    ("growth: limits are of keys, not of their squares", "local_join.cu", "metric == Metric::euclidean ? double{key} * key : double{key}", "double{key}"),
    ("growth: a limit is rounded down", "local_join.cu", "squared * (1 + 0x1p-20) + 1", "squared * (1 - 0x1p-20) - 1"),
    ("growth: samples come twice", "local_join.cu", "      if (there == sample) continue;\n", ""),
    ("growth: samples past the last meet", "local_join.cu", "i >= meeting.end_row || j >= meeting.end_column ||", "i >= meeting.end_row ||"),
    ("growth: old samples meet", "local_join.cu", "i >= meeting.end_row || j >= meeting.end_column ||", "i >= count || j >= meeting.end_column ||"),
    ("growth: of two sides only one meets the other's old samples", "local_join.cu", "{a, b, c, d}}", "{a, b, d, d}}"),
    ("growth: samples meet those of their own side", "local_join.cu", "i < fresh ? beyond : 3 - beyond", "i < fresh ? beyond : 2 + beyond"),
    ("growth: samples take places before all are counted", "local_join.cu", "atomicAdd(&found[kind], 1u);\n  }\n  " + SYNC, "atomicAdd(&found[kind], 1u);\n  }"),
    ("growth: samples are multiplied before they have come", "local_join.cu", "  simt::copy_async_commit();\n  simt::copy_async_wait<0>();\n", "  simt::copy_async_commit();\n"),
    ("growth: samples are multiplied before all are copied", "local_join.cu", "copy_samples(rows, memory, count);\n    " + SYNC, "copy_samples(rows, memory, count);"),
    ("growth: what follows a sample is multiplied", "local_join.cu", "byte < there ? *reinterpret_cast<const std::uint32_t*>(sample + byte) : 0u", "*reinterpret_cast<const std::uint32_t*>(sample + byte)"),
    ("growth: zeros behind a sample are not written", "local_join.cu", "reinterpret_cast<std::uint32_t*>(to)[word] = 0;", ";"),
    ("growth: a row begins before the last has ended", "local_join.cu", "memory.among_old[i]);\n  }\n  " + SYNC, "memory.among_old[i]);\n  }"),
    ("growth: kept ones are offered too early", "local_join.cu", "const JoinSize& size) {\n  " + SYNC, "const JoinSize& size) {"),
    ("growth: candidates change before all have compared", "growth.cu", "    kept[c] = entry;\n  }\n  __syncwarp();\n", "    kept[c] = entry;\n  }\n"),
    ("growth: a list is written before all have read it", "growth.cu", "  __syncwarp();\n  for (int i = lane_id(); i < k; i += 32) list[i] = staged[i];", "  for (int i = lane_id(); i < k; i += 32) list[i] = staged[i];"),
    ("growth: a list's last place is not taken", "growth.cu", "if (place >= k) continue;", "if (place >= k - 1) continue;"),
    ("growth: rows are taken before they are compared", "growth.cu", "      __syncwarp();\n      take_into(", "      take_into("),
    ("growth: what is named twice stays new", "growth.cu", "(found[j] < entry || (", "(found[j] > entry || ("),
    ("windows: sums are read before all have summed", "cell_windows.cu", "  " + SYNC + "\n  queries = tiles = 0;", "  queries = tiles = 0;"),
    ("windows: a thread's own stretches come before them", "cell_windows.cu", "before < thread; ++before", "before <= thread; ++before"),
    ("windows: places of queries are counted without a lock", "cell_windows.cu", "sorted[atomicAdd(&next[stretch], 1u)]", "sorted[next[stretch]++]"),
    ("windows: a walk begins again where it began", "cell_windows.cu", "  to[query] = walk.at();\n}", "}"),
    ("pairs: the first is always a row's first", "pair_keys.cu", "number = pairs.first + i, row", "number = i, row"),
    ("pairs: far rows have keys", "pair_keys.cu", "neighbor == no_neighbor ? __uint_as_float(0x7F800000u)", "false ? __uint_as_float(0x7F800000u)"),
    ("pairs: all with all go by their numbers", "pair_keys.cu", "pairs.with_all ? number - row * pairs.width : i", "pairs.with_all ? i % (pairs.width - 1) : i"),
    ("facts: a row of one finite element is usable", "device_rows.cu", "!__all_sync(~0u, finite)", "!__any_sync(~0u, finite)"),
    ("facts: the first lane alone sees negative elements", "device_rows.cu", "__any_sync(~0u, negative) && ", "negative && "),
    ("facts: what is behind a row is not zero", "device_rows.cu", "if (row_bytes < pitch) simt::fill(data_.get(), 0, data_.size(), stream);", ""),
    ("facts: rows of any length are read where they lie", "device_rows.cu", " && row_bytes % 16 == 0;", ";"),
    ("unusable: the first lane alone sees them", "unusable_rows.cu", "    nonfinite = __any_sync(~0u, nonfinite);\n", ""),
    ("unusable: the last of them is named", "unusable_rows.cu", "atomicMin(first + 1,", "atomicExch(first + 1,"),
    ("joins: rows are found twice", "append.cuh", "!(homes && is_known(row))", "!(homes && row == no_self && is_known(row))"),
    ("joins: all but the last home are looked at", "append.cuh", "i < looked_width; ++i", "i < looked_width - 1; ++i"),
    ("encoding: slabs are overwritten while they are read", "encode_products.cu", "      }\n      " + SYNC + "\n    }\n    GIGAKNN", "      }\n    }\n    GIGAKNN"),
]

# Mutants that change no result, and why.
EXPLAINED = {
    "stream: far rows bound the list": "their intervals have no upper end, so they bound nothing; they are computed, and are no neighbours",
    "stream: sums that overflow are taken for far": "they are farther than all whose sums do not, but where rounding alone makes one overflow",
    "a sample's bound is taken for a chunk's": "what equals the bound in later chunks is left out: fewer than k, and the row is read again",
    "a sample's own value may not enter": "the same, in the first chunk",
    "wrong register holds the k-th": "at k a multiple of 32 the bound is a later key: looser, and lets more candidates in",
    "streamed: queries past the end are looked at": "their limit lets infinite sums alone through, which no memory of the emulated device holds; that of a GPU may",
}

# By warps, what only warpgroups do, and scans that are streamed.
TESTS = [
    ("0", "src/ops/select_rows_test"),
    ("0", "src/ops/gpu_lists_test"),
    ("0", "src/ops/device_matrix_test"),
    ("0", "src/ops/gpu_limits_test", "--gtest_filter=*both_sides*"),
    ("1", "src/ops/gpu_conformance_test", "--gtest_filter=*warpgroups*:*crosses*"),
    ("2", "src/ops/gpu_limits_test", "--gtest_filter=*both_sides*"),
    ("2", "src/ops/gpu_conformance_test", "--gtest_filter=*warpgroups*:*crosses*:*stages*"),
    ("0", "src/ops/gpu_codes_test"),
    ("0", "src/ops/gpu_growth_test"),
    ("0", "src/ops/gpu_conformance_test", "--gtest_filter=GpuSearch.*:*scans*:*join_cells*:*nearest_rows*:*symmetric*:*first_self*:*self_nearest*:*pair_distances*:*products_equal*:*sum_by_label*"),
]


def run(command, cwd, seconds, **environment):
    try:
        return subprocess.run(command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True,
                              timeout=seconds).returncode == 0
    except subprocess.TimeoutExpired:
        return False


class Copy:
    """A copy of the tree with its builds."""

    def __init__(self, number):
        self.path = ROOT / "build" / "mutants" / str(number)
        self.path.mkdir(parents=True, exist_ok=True)
        files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
        for name in files:
            to = self.path / name
            if not to.exists() or to.read_bytes() != (ROOT / name).read_bytes():
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, to)  # as of now: what was built of another is older

    def build(self, preset):
        plain = ["-DGIGAKNN_SANITIZE="] if preset == "tiny" else []
        return (run(["cmake", "--preset", preset, *plain, "-DGIGAKNN_CLI=OFF", "-DGIGAKNN_BENCH=OFF", "-DGIGAKNN_WERROR=OFF"], self.path, 300) and
                run(["cmake", "--build", "--preset", preset, "-j1", "--target", *{Path(program).name for _, program, *_ in TESTS}],
                    self.path, 3600))

    def passes(self, preset):
        """Whether all tests pass; None: it does not compile."""
        if not self.build(preset):
            return None
        seed = "2" if preset == "tiny" else "0"
        return all(run([str(self.path / "build" / preset / program), "--gtest_fail_fast", *arguments], self.path, 300,
                       GIGAKNN_WARPGROUPS=warpgroups, GIGAKNN_EMULATED_SEED=seed, GIGAKNN_EMULATED_TIMEOUT="20",
                       TSAN_OPTIONS="halt_on_error=1")
                   for warpgroups, program, *arguments in TESTS)

    def verdict(self, mutant):
        name, file, old, new = mutant
        path = self.path / GPU / file
        text = path.read_text()
        if old not in text:
            return "the text to change is not there"
        path.write_text(text.replace(old, new, 1))
        try:
            for preset in ("tiny", "tsan"):
                passed = self.passes(preset)
                if passed is None:
                    return "does not compile"
                if not passed:
                    return "caught" if preset == "tiny" else "caught by the thread sanitizer"
            return "SURVIVED"
        finally:
            path.write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    if arguments.check:
        stale = [name for name, file, old, _ in MUTANTS if old not in (ROOT / GPU / file).read_text()]
        for name in stale:
            print(f"{name}: the text to change is not there")
        return bool(stale)
    mutants = [m for m in MUTANTS if not arguments.names or any(name in m[0] for name in arguments.names)]
    copies = [Copy(number) for number in range(arguments.jobs)]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        if not all(pool.map(lambda copy: copy.passes("tiny") and copy.passes("tsan"), copies)):
            sys.exit("the tests do not pass without a mutant")

        def work(number):
            found = []
            for mutant in mutants[number::arguments.jobs]:
                verdict = copies[number].verdict(mutant)
                if verdict == "SURVIVED" and mutant[0] in EXPLAINED:
                    verdict = "survived: " + EXPLAINED[mutant[0]]
                print(f"{mutant[0]:55s} {verdict}", flush=True)
                found.append(verdict)
            return found

        verdicts = sum(pool.map(work, range(arguments.jobs)), [])
    caught = sum(verdict.startswith("caught") for verdict in verdicts)
    print(f"{caught} of {len(verdicts)} mutants caught, {sum(v.startswith('survived') for v in verdicts)} explained")
    return any(not verdict.startswith(("caught", "survived")) for verdict in verdicts)


if __name__ == "__main__":
    sys.exit(main())
