// JSON with events, objects with `traceEvents` or lists, taken apart into lines of one event each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "dftrace/reading/documents/compact_json.hpp"
#include "dftrace/reading/documents/odd_times.hpp"

namespace dftrace {

// What is known of a document when it is over.
struct Document {
    bool is_list = false, has_events = false;  // has a list of events, if only its beginning
    std::uint64_t entries = 0;                 // of the list, events or not
    std::uint64_t events = 0;
    std::vector<std::string> members;                       // names of the first ones, as JSON
    std::map<std::string, std::string, std::less<>> facts;  // beside the events, of those that are of use
    std::optional<std::int64_t> pid;                        // by what tells it best
    // Why it cannot be read on, and from which byte of all text on.
    const char* tear = nullptr;
    std::uint64_t torn_at = 0;
    bool damaged = false;  // something is there, and it is broken; else the text ends too early
};

// Takes text in pieces of any size, of documents that may be far larger than memory: at most one event is
// held. Lines have the members in the recorder's order, digits as they were written, and numbers for
// processes and threads that are called by texts.
class Documents {
  public:
    // `listed`: the events of the first document are in a list, and do not stand one behind the other. An
    // event of more than `most_bytes` is taken for broken.
    Documents(bool listed, std::size_t most_bytes);

    // Appends lines of what became known by the text to `lines`. No text says that there is no more.
    void add(std::string_view text, std::string& lines);
    bool over() const noexcept { return at_state_ == State::over; }
    const Document& document() const noexcept { return document_; }
    std::uint64_t place() const noexcept { return before_ + at_; }

    // Whether more than blanks stands behind the document; nothing where more text has to tell.
    std::optional<bool> goes_on();
    // Goes on with the next document, by the text that comes.
    void begin();

    // What is to be done with the lines of the document; nothing where all of its times can be.
    const Mending* mending();
    // Appends lines of the document, from its first one on, as they are to be.
    void mend(std::string_view lines, std::string& mended);

  private:
    enum class State { beginning, key, colon, value, passing, behind_value, entry, behind_entry, over };
    static constexpr int no_letter = -1, not_known = -2;

    bool step(std::string& lines);
    bool step_in_object(int letter);
    bool step_in_list(int letter, std::string& lines);
    bool pass();
    int letter();
    bool open(State next);
    bool tear(const char* reason, bool damaged);
    bool early();
    bool broken();
    bool take_value(bool with_members);
    void put_entry(std::string& lines);
    void put_event(std::string& lines);
    void settle_members();
    std::string number_of(std::string_view text);

    struct Member {
        std::string_view key, value;
    };

    std::size_t most_bytes_;
    std::string text_;
    std::size_t at_ = 0, wanted_ = 0;  // of the text; and how much more of it makes sense to look at again
    std::uint64_t before_ = 0;         // bytes that were let go
    bool ends_ = false;

    State at_state_ = State::beginning;
    bool endless_ = false;  // a list that needs neither commas nor an end, as Chrome's need none
    std::size_t depth_ = 0;
    std::uint64_t string_at_ = 0;
    bool in_string_ = false, escaped_ = false;
    std::string key_;
    std::string value_;                // that was read last
    std::vector<std::size_t> places_;  // in it, of keys, values and their ends
    std::vector<Member> members_;

    Document document_;
    std::unordered_map<std::string, std::int64_t> numbers_;
    std::uint64_t count_ = 0, mended_ = 0;
    OddTimes odd_;
    std::optional<Mending> mending_;
};

}  // namespace dftrace
