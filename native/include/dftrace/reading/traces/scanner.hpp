// Lines to columns: those in the layout of the recorder at a glance, all others by a general reader of JSON.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dftrace/reading/traces/argument_pattern.hpp"
#include "dftrace/reading/traces/labels.hpp"
#include "dftrace/reading/traces/rows.hpp"

namespace dftrace {

// What stands behind a text that is scanned: line breaks. No literal and no number holds one, so that no step
// of the scanner, of which each looks at fewer bytes, passes it.
inline constexpr std::size_t scan_pad = 320;

// Text with its pad. What was in it is gone when it is asked for room.
class PlainText {
  public:
    char* room_for(std::size_t bytes);
    // The first `bytes` are text.
    void close(std::size_t bytes) noexcept;
    const char* data() const noexcept { return bytes_.data(); }
    std::size_t size() const noexcept { return size_; }
    std::string_view view() const noexcept { return {bytes_.data(), size_}; }

  private:
    std::vector<char> bytes_;
    std::size_t size_ = 0;
};

class Scanner {
  public:
    explicit Scanner(Labels& labels) : all_(labels), known_(labels), next_(64) {}

    // The lines of `text`, which ends with a line break or is empty.
    void scan(const PlainText& text, Rows& rows);

  private:
    bool in_layout(const char* at, Rows& rows, const char*& end);
    bool named(const char*& at, std::uint32_t& label);
    bool tracked(const char*& at);
    bool key(const char*& at);
    bool inside(const char*& at, char close, int depth);
    bool value(const char*& at, int depth);
    bool member(const char*& at);
    bool members(const char*& at);
    bool members_as_before(const char*& at);
    bool of_stacks(const char* at, Rows& rows, const char*& end);
    void general(std::string_view line, Rows& rows);

    Labels& all_;
    KnownLabels known_;
    // By the label of a line: how the name behind it was spelt the last time.
    std::vector<const Labels::Spelling*> next_;
    std::uint32_t last_label_ = 0;
    // `,"pid":1,"tid":1,"ts":` of the line before, and its track.
    std::string track_text_;
    std::uint32_t track_ = 0;
    std::string host_text_;  // `"args":{"hhash":"..."`
    // Of the arguments behind those of the recorder, with the braces and the line break: by label; some share
    // one.
    std::array<ArgumentPattern, 64> patterns_;
    const char* text_ = nullptr;
    const char* text_end_ = nullptr;
    bool beyond_ascii_ = false;
};

}  // namespace dftrace
