// Documents with events: the same lines however the text is cut, and each of them JSON.
#include <cstdint>
#include <string>
#include <string_view>

#include "checked_line.hpp"
#include "dftrace/reading/documents/documents.hpp"

using namespace dftrace;

namespace {

struct Taken {
    std::string lines, mended;
    std::uint64_t documents = 0, torn_at = 0;
    std::string_view tear;
};

Taken taken(std::string_view text, bool listed, std::size_t piece) {
    Taken all;
    Documents documents(listed, 1 << 16);
    for (; all.documents < 20; ++all.documents, documents.begin()) {
        std::string lines;
        const auto feed = [&] {
            documents.add(text.substr(0, piece), lines);
            text.remove_prefix(std::min(piece, text.size()));
        };
        while (!documents.over()) feed();
        if (documents.mending()) documents.mend(lines, all.mended);
        all.lines += lines;
        if (documents.document().tear) {
            all.tear = documents.document().tear;
            all.torn_at = documents.document().torn_at;
            break;
        }
        while (!documents.goes_on()) feed();
        if (!*documents.goes_on()) break;
    }
    return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
    if (bytes < 2) return 0;
    const std::string_view text(reinterpret_cast<const char*>(data) + 2, bytes - 2);
    const bool listed = data[0] & 1;
    const Taken whole = taken(text, listed, text.size() + 1), cut = taken(text, listed, data[1] % 64 + 1u);
    if (whole.lines != cut.lines || whole.mended != cut.mended || whole.tear != cut.tear ||
        whole.torn_at != cut.torn_at || whole.documents != cut.documents)
        fail("another reading, cut elsewhere", text);
    if (whole.torn_at > text.size()) fail("torn behind its end", text);
    for (std::string_view lines = whole.lines; !lines.empty();) {
        const std::size_t end = lines.find('\n');
        if (end == lines.npos) fail("a line without an end", text);
        lines.remove_prefix(end + 1);
    }
    return 0;
}
