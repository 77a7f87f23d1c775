// The streaming half of exact search: every row of a base, in the order of the scans, against every
// query, tile by tile. What a query's limit does not exclude is appended to its survivors; nothing
// else is written.
#pragma once

#include "ops/gpu/survivors.hpp"

namespace gigaknn::gpu {

/// By products of codes, on tensor cores. Leaves finished neighbours for bytes.
void scan_products(const SearchJob& job, const Survivors& lists, simt::Stream* stream);
/// The same of `job.window`, whose tiles are of `queries_of_cell_tile` queries: many of them, `wide`, or few.
void scan_products_in_cells(const SearchJob& job, bool wide, const Survivors& lists, simt::Stream* stream);
int queries_of_cell_tile(bool wide);
/// The same of rows order[0] ... order[count - 1] of job.base, encoded for it, behind what lists have, whose keys are then computed:
/// another base may follow.
void scan_more_in_cells(SearchJob job, const LocalRow* order, std::int64_t count, bool wide, const Survivors& lists, simt::Stream* stream);
/// Whether it does so by warpgroups (wgmma): where there are such, and a trial gave what mma.sync gives.
bool multiplies_by_warpgroups(int device);
/// And as scan_streamed.hpp has it; rows of such codes too.
bool streams_slabs(int device);
bool streams_slabs(int device, const CodesView& codes);

/// By differences in float32 (l1, linf, chi2) or counts of bits (hamming, jaccard).
void scan_differences(const SearchJob& job, const Survivors& lists, simt::Stream* stream);
bool has_difference_form(Metric metric, std::int64_t cols);
/// Whether it leaves finished neighbours.
bool differences_are_exact(Metric metric, DType dtype);
/// The most by which its numbers and the key differ, as a share of the lesser.
double difference_error(Metric metric, DType dtype, std::int64_t cols);
/// And beyond that, by terms too small for float32.
double difference_slack(Metric metric, std::int64_t cols);

}  // namespace gigaknn::gpu
