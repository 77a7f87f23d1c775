#include "index/faiss_rows.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/half.hpp"
#include "core/require.hpp"

namespace gigaknn {
namespace {

struct OwnCodes {
  DType dtype;
  FaissScalarType type;
};
constexpr OwnCodes own_codes[] = {{DType::u8, FaissScalarType::direct},
                                  {DType::i8, FaissScalarType::direct_signed},
                                  {DType::f16, FaissScalarType::fp16},
                                  {DType::bf16, FaissScalarType::bf16}};

unsigned byte_at(const std::byte* code, std::size_t i) { return std::to_integer<unsigned>(code[i]); }

unsigned six_bits_at(const std::byte* code, std::size_t j) {
  const std::size_t bit = 6 * j, byte = bit / 8, shift = bit % 8;
  const unsigned high = shift > 2 ? byte_at(code, byte + 1) << 8 : 0;  // only then the next byte is the row's own
  return (byte_at(code, byte) | high) >> shift & 63U;
}

std::uint16_t word_at(const std::byte* code, std::size_t j) {
  return static_cast<std::uint16_t>(byte_at(code, 2 * j) | byte_at(code, 2 * j + 1) << 8);
}

float decoded_at(const FaissScalar& quantizer, const std::byte* code, std::size_t cols, std::size_t j) {
  const auto stepped = [&](unsigned value) {
    return in_steps(quantizer, static_cast<std::int64_t>(cols), static_cast<std::int64_t>(j), value);
  };
  switch (quantizer.type) {
    case FaissScalarType::bits8:
    case FaissScalarType::bits8_uniform: return stepped(byte_at(code, j));
    case FaissScalarType::bits4:
    case FaissScalarType::bits4_uniform: return stepped(byte_at(code, j / 2) >> (j % 2 * 4) & 15U);
    case FaissScalarType::bits6: return stepped(six_bits_at(code, j));
    case FaissScalarType::fp16: return float_of_half(word_at(code, j));
    case FaissScalarType::bf16: return float_of_bf16(word_at(code, j));
    case FaissScalarType::direct: return static_cast<float>(byte_at(code, j));
    case FaissScalarType::direct_signed: break;
  }
  return static_cast<float>(byte_at(code, j)) - 128;
}

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

bool all_finite(std::span<const float> row) {
  return std::all_of(row.begin(), row.end(), [](float value) { return std::isfinite(value); });
}

}  // namespace

std::optional<DType> dtype_of(FaissScalarType type) {
  const auto* found = std::find_if(std::begin(own_codes), std::end(own_codes), [&](const OwnCodes& own) { return own.type == type; });
  return found == std::end(own_codes) ? std::nullopt : std::optional(found->dtype);
}

FaissScalarType scalar_type_of(DType dtype) {
  return std::find_if(std::begin(own_codes), std::end(own_codes), [&](const OwnCodes& own) { return own.dtype == dtype; })->type;
}

std::optional<double> step_of(const FaissScalar& quantizer) {
  if (quantizer.type != FaissScalarType::bits8_uniform || quantizer.trained.size() != 2) return std::nullopt;
  const double step = static_cast<double>(quantizer.trained[1]) / 255;
  if (!std::isfinite(step) || step <= 0 || quantizer.trained[0] != trained_by(step)[0]) return std::nullopt;
  return step;
}

// Faiss's code c stands for least + width * (c + 0.5) / 255. The least goes by the width as float32 has it, which is all that a reader
// knows of the step.
std::array<float, 2> trained_by(double step) {
  const auto width = static_cast<float>(255 * step);
  return {static_cast<float>(-128.5 * (static_cast<double>(width) / 255)), width};
}

int step_bits_of(FaissScalarType type) {
  switch (type) {
    case FaissScalarType::bits8:
    case FaissScalarType::bits8_uniform: return 8;
    case FaissScalarType::bits6: return 6;
    case FaissScalarType::bits4:
    case FaissScalarType::bits4_uniform: return 4;
    default: return 0;
  }
}

// The middle of one of the steps.
float in_steps(const FaissScalar& quantizer, std::int64_t cols, std::int64_t j, unsigned code) {
  const bool uniform = quantizer.trained.size() == 2;
  const float least = quantizer.trained[at(uniform ? 0 : j)], width = quantizer.trained[at(uniform ? 1 : cols + j)];
  return least + width * ((static_cast<float>(code) + 0.5F) / static_cast<float>((1 << step_bits_of(quantizer.type)) - 1));
}

void flip_signs(std::span<std::byte> values) {
  for (std::byte& value : values) value ^= std::byte{0x80};
}

FaissRows::FaissRows(std::int64_t cols, const FaissScalar* quantizer, bool by_residual, bool as_bytes)
    : quantizer_(quantizer),
      decoded_(at(cols)),
      code_bytes_(quantizer ? static_cast<std::size_t>(quantizer->code_bytes) : at(cols) * sizeof(float)) {
  if (!quantizer || by_residual) return;
  if (const auto own = as_bytes ? std::optional(DType::i8) : dtype_of(quantizer->type)) {
    dtype_ = *own;
    decodes_ = false;
  }
}

bool FaissRows::read(const std::byte* code, const float* centroid, std::byte* row) {
  if (decodes()) {
    for (std::size_t j = 0; j < decoded_.size(); ++j) {
      decoded_[j] = decoded_at(*quantizer_, code, decoded_.size(), j) + (centroid ? centroid[j] : 0);
    }
    std::memcpy(row, decoded_.data(), decoded_.size() * sizeof(float));
    return all_finite(decoded_);
  }
  std::memcpy(row, code, code_bytes_);
  if (dtype_ == DType::i8) flip_signs({row, code_bytes_});
  if (dtype_ == DType::u8 || dtype_ == DType::i8) return true;
  if (dtype_ == DType::f32) {
    std::memcpy(decoded_.data(), code, code_bytes_);
  } else {
    for (std::size_t j = 0; j < decoded_.size(); ++j) decoded_[j] = decoded_at(*quantizer_, code, decoded_.size(), j);
  }
  return all_finite(decoded_);
}

}  // namespace gigaknn
