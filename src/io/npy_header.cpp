#include "io/npy_header.hpp"

#include <limits>

namespace gigaknn {
namespace {

constexpr std::string_view magic = "\x93NUMPY";

/// A reader of the subset of Python that NumPy writes: one dictionary of strings, booleans and a
/// tuple.
class DictionaryReader {
 public:
  DictionaryReader(const FileBytes& file, std::uint64_t begin, std::uint64_t end)
      : file_(file), at_(begin), end_(end) {}

  NpyHeader read() {
    NpyHeader header;
    bool descr = false;
    bool order = false;
    bool shape = false;
    expect('{');
    while (peek() != '}') {
      const std::uint64_t key_at = at_;
      const std::string key = read_string();
      bool& seen = key == "descr" ? descr : key == "fortran_order" ? order : shape;
      require_at(key == "descr" || key == "fortran_order" || key == "shape", file_, key_at,
                 "unknown key '", printable(key),
                 "' in the npy header, expected descr, fortran_order, shape");
      require_at(!seen, file_, key_at, "the npy header has '", key, "' twice");
      seen = true;
      expect(':');
      if (key == "descr") header.descr = read_descr();
      if (key == "fortran_order") header.fortran_order = read_boolean();
      if (key == "shape") header.shape = read_tuple();
      if (peek() != '}') expect(',');
    }
    expect('}');
    require_at(descr && order && shape, file_, at_, "the npy header lacks '",
               !descr   ? "descr"
               : !order ? "fortran_order"
                        : "shape",
               "'");
    require_at(peek() == '\0', file_, at_, "text after the dictionary of the npy header");
    header.data_offset = end_;
    return header;
  }

 private:
  /// The next character that is no white space; '\0' at the end. It stays unread.
  char peek() {
    while (at_ < end_ && (here() == ' ' || here() == '\n' || here() == '\t')) ++at_;
    return at_ < end_ ? here() : '\0';
  }
  char here() const { return static_cast<char>(file_.bytes[at_]); }

  void expect(char wanted) {
    const char found = peek();
    require_at(found == wanted, file_, at_, "expected '", wanted, "' in the npy header, found ",
               found == '\0' ? std::string("its end") : printable(std::string{'\'', found, '\''}));
    ++at_;
  }

  std::string read_string() {
    const char quote = peek();
    require_at(quote == '\'' || quote == '"', file_, at_,
               "expected a quoted string in the npy header");
    std::string text;
    for (++at_; at_ < end_ && here() != quote; ++at_) text.push_back(here());
    require_at(at_ < end_, file_, at_, "a string in the npy header has no end");
    ++at_;
    return text;
  }

  std::string read_descr() {
    require(peek() != '[', Fault::unsupported, file_.name, ": byte ", at_,
            ": structured npy arrays are not supported, expected one of f4 f2 u1 i1 i4 i8, or <V2 for bfloat16");
    return read_string();
  }

  bool read_boolean() {
    peek();
    const std::uint64_t begin = at_;
    std::string word;
    for (; at_ < end_ && here() >= 'A' && here() <= 'z'; ++at_) word.push_back(here());
    require_at(word == "True" || word == "False", file_, begin, "fortran_order is '",
               printable(word), "', expected True or False");
    return word == "True";
  }

  std::vector<std::uint64_t> read_tuple() {
    std::vector<std::uint64_t> values;
    expect('(');
    while (peek() != ')') {
      values.push_back(read_number());
      if (peek() != ')') expect(',');
    }
    expect(')');
    return values;
  }

  std::uint64_t read_number() {
    constexpr std::uint64_t most = std::numeric_limits<std::int64_t>::max();
    const std::uint64_t begin = at_;
    std::uint64_t value = 0;
    for (; at_ < end_ && here() >= '0' && here() <= '9'; ++at_) {
      const auto digit = static_cast<std::uint64_t>(here() - '0');
      require_at(value <= (most - digit) / 10, file_, begin,
                 "a dimension in the npy header exceeds ", most);
      value = value * 10 + digit;
    }
    require_at(at_ > begin, file_, at_, "expected a number in the shape of the npy header");
    if (at_ < end_ && here() == 'L') ++at_;  // Python 2 wrote 60000L
    return value;
  }

  const FileBytes& file_;
  std::uint64_t at_;
  std::uint64_t end_;
};

}  // namespace

NpyHeader read_npy_header(const FileBytes& file) {
  for (std::size_t i = 0; i < magic.size(); ++i) {
    require_at(value_at<char>(file, i, "the npy magic") == magic[i], file, i,
               "not an npy file: the first 6 bytes are not \\x93NUMPY");
  }
  const int version = value_at<std::uint8_t>(file, 6, "the npy version");
  require(version >= 1 && version <= 3, Fault::unsupported, file.name, ": byte 6: npy version ",
          version, " is not supported, expected 1 to 3");
  value_at<std::uint8_t>(file, 7, "the minor npy version");
  const bool narrow = version == 1;
  const std::uint64_t begin = narrow ? 10 : 12;
  const std::uint64_t length = narrow ? value_at<std::uint16_t>(file, 8, "the npy header length")
                                      : value_at<std::uint32_t>(file, 8, "the npy header length");
  require_at(length <= file.size() - begin, file, 8, "the npy header has ", length,
             " bytes, but the file has only ", file.size() - begin, " after byte ", begin);
  return DictionaryReader(file, begin, begin + length).read();
}

}  // namespace gigaknn
