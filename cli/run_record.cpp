#include "run_record.hpp"

#include <gigaknn/gigaknn.hpp>

#include "memory.hpp"
#include "outputs.hpp"
#include "watch.hpp"

namespace gigaknn::cli {

RunRecord make_record(const std::string& command_line, const CommonOptions& options) {
  RunRecord record;
  record.command = command_line;
  record.metric = options.metric;
  record.method = options.method == "auto" ? "exact" : options.method;
  record.device = options.device;
  record.isa = isa_of(options.device);
  record.threads = options.thread_count();
  record.seed = options.seed;
  return record;
}

void describe_base(RunRecord& record, MatrixRef base) {
  record.n = base.rows;
  record.d = base.cols;
  record.dtype = name_of(base.dtype);
}

Recall exact_recall(std::int64_t k, const std::optional<Verification>& verification) {
  return {k, 1, 1, 1, verification ? verification->rows : 0};
}

Json json_of(const RunRecord& record) {
  const Seconds& seconds = record.seconds;
  Json json = {
      {"version", version()},
      {"commit", commit()},
      {"command", record.command},
      {"n", record.n},
      {"d", record.d},
      {"k", record.k},
      {"dtype", record.dtype},
      {"metric", record.metric},
      {"method", record.method},
      {"device", record.device},
      {"isa", record.isa},
      {"threads", record.threads},
      {"seed", record.seed},
      {"exact", record.exact},
      {"filter", record.filter},
      {"seconds",
       {{"load", seconds.load},
        {"prepare", seconds.prepare},
        {"compute", seconds.compute},
        {"evaluate", seconds.evaluate},
        {"write", seconds.write},
        {"total", seconds.total}}},
  };
  if (const auto& recall = record.recall) {
    json["recall"] = {{"at", recall->at},
                      {"value", recall->value},
                      {"low", recall->low},
                      {"high", recall->high},
                      {"sampled", recall->sampled}};
  } else {
    json["recall"] = nullptr;
  }
  if (const auto& verification = record.verification) {
    json["verification"] = {{"rows", verification->rows},
                            {"entries", verification->entries},
                            {"different", verification->different}};
  }
  if (record.device != "cpu") json["kernels"] = kernel_launches();
  json["memory"] = {{"planned_bytes", record.planned_bytes}, {"peak_bytes", peak_bytes() + record.worker_peak_bytes}};
  json.update(record.more);
  return json;
}

void write_record(const RunRecord& record, const std::filesystem::path& path) {
  if (path.empty()) return;
  RunRecord finished = record;
  finished.seconds.total = now_s();
  write_text_file(path, json_of(finished).text() + "\n");
}

}  // namespace gigaknn::cli
