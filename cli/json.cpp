#include "json.hpp"

#include <utility>

#include <nlohmann/json.hpp>

namespace gigaknn::cli {

Json::Json() : Json(Value::object()) {}

Json::Json(std::initializer_list<Member> members) : Json() {
  for (const Member& member : members) (*value_)[member.name] = member.value.value();
}

Json::Json(std::nullptr_t) : Json(Value(nullptr)) {}
Json::Json(bool value) : Json(Value(value)) {}
Json::Json(int value) : Json(Value(value)) {}
Json::Json(std::int64_t value) : Json(Value(value)) {}
Json::Json(std::uint64_t value) : Json(Value(value)) {}
Json::Json(double value) : Json(Value(value)) {}
Json::Json(const char* text) : Json(Value(text)) {}
Json::Json(const std::string& text) : Json(Value(text)) {}
Json::Json(std::string_view text) : Json(Value(text)) {}
Json::Json(const std::vector<float>& values) : Json(Value(values)) {}
Json::Json(const std::map<std::string, std::int64_t>& members) : Json(Value(members)) {}

Json::Json(const std::vector<Json>& values) : Json(Value::array()) {
  for (const Json& json : values) value_->push_back(json.value());
}

Json::Json(Value value) : value_(std::make_unique<Value>(std::move(value))) {}
Json::Json(const Json& other) : Json(other.value()) {}
Json::Json(Json&& other) noexcept = default;
Json::~Json() = default;

Json& Json::operator=(const Json& other) {
  value_ = std::make_unique<Value>(other.value());
  return *this;
}

Json& Json::operator=(Json&& other) noexcept = default;

Json::Place Json::operator[](const std::string& name) { return Place((*value_)[name]); }

void Json::update(const Json& other) { value_->update(other.value()); }

std::string Json::text() const { return value_->dump(2, ' ', false, Value::error_handler_t::replace); }

void Json::Place::operator=(const Json& json) { value_ = json.value(); }

Json::Place Json::Place::operator[](const std::string& name) { return Place(value_[name]); }

}  // namespace gigaknn::cli
