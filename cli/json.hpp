// The JSON that commands write. It is nlohmann's, but json.cpp and page.cpp alone include its header, which takes 3 s of compilation in
// each file that builds a value.
//
//   record.more["nprobe"] = 16;
//   record.more["tasks"] = {{"total", 12}, {"seconds", 3.5}};
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace gigaknn::cli {

/// A value of JSON; copies are values of their own.
class Json {
 public:
  using Value = nlohmann::ordered_json;
  struct Member;
  class Place;

  Json();  ///< an object without members
  Json(std::initializer_list<Member> members);  ///< an object; they keep this order
  Json(std::nullptr_t);
  Json(bool value);
  Json(int value);
  Json(std::int64_t value);
  Json(std::uint64_t value);
  Json(double value);
  Json(const char* text);
  Json(const std::string& text);
  Json(std::string_view text);
  Json(const std::vector<float>& values);
  Json(const std::vector<Json>& values);
  Json(const std::map<std::string, std::int64_t>& members);
  explicit Json(Value value);
  Json(const Json& other);
  Json& operator=(const Json& other);
  Json(Json&& other) noexcept;
  Json& operator=(Json&& other) noexcept;
  ~Json();

  /// The member of an object that is called `name`, added if there is none.
  Place operator[](const std::string& name);
  /// Takes the members of another object: they are added, or replace those of the same name.
  void update(const Json& other);
  const Value& value() const { return *value_; }
  /// By lines, indented by 2. Bytes that are no UTF-8, as file names may hold, are replaced.
  std::string text() const;

 private:
  std::unique_ptr<Value> value_;
};

struct Json::Member {
  const char* name;
  Json value;
};

/// A member that is assigned to, inside a Json that outlives this and gets no other member meanwhile.
class Json::Place {
 public:
  explicit Place(Value& value) : value_(value) {}
  void operator=(const Json& json);
  Place operator[](const std::string& name);

 private:
  Value& value_;
};

}  // namespace gigaknn::cli
