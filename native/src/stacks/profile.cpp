// Nodes and times as JSON, and how paths become names that tell nothing of the machine.
#include "dftrace/stacks/profile.hpp"

#include <algorithm>
#include <optional>

#include "dftrace/text/json_string.hpp"

namespace dftrace {

namespace {

constexpr std::uint32_t none = StackNode::no_caller;

void append_number(std::string& list, std::int64_t number) {
    if (!list.empty()) list += ',';
    list += std::to_string(number);
}

// `file:///home/me/train.py`, as some notebooks and servers name code.
std::string_view without_scheme(std::string_view file) noexcept {
    constexpr std::string_view scheme = "file:";
    if (!file.starts_with(scheme)) return file;
    file.remove_prefix(scheme.size());
    while (file.starts_with("//")) file.remove_prefix(1);
    return file;
}

// Of what leads out of its directory, or may be a path from the root on, the last part alone.
std::string told_of(std::string_view file) {
    while (file.starts_with("./")) file.remove_prefix(2);
    const bool is_below = !file.starts_with('/') && !file.starts_with('~') && !file.starts_with("../") &&
                          file.find("/../") == file.npos && file.find("//") == file.npos &&
                          file.find(" /") == file.npos && file.find(":/") == file.npos;
    if (is_below) return std::string(file);
    const std::string_view last = file.substr(file.rfind('/') + 1);
    return std::string(file.starts_with('<') && !last.starts_with('<') ? "<" : "").append(last);
}

}  // namespace

CodePlaces::CodePlaces(std::string_view roots, bool tells_files) : tells_files_(tells_files) {
    while (!roots.empty()) {
        const std::size_t end = std::min(roots.find('\n'), roots.size());
        if (end > 1) {
            const auto owner = static_cast<CodeOwner>(static_cast<unsigned>(roots[0] - '0') & 3);
            roots_.push_back({std::string(roots.substr(1, end - 1)) + '/', owner});
        }
        roots.remove_prefix(std::min(end + 1, roots.size()));
    }
    // One that lies in another one comes first.
    std::ranges::sort(roots_, std::greater<>{}, [](const Root& root) { return root.path.size(); });
}

CodePlace CodePlaces::of(const CodeName& name) const {
    CodePlace place{name.function, {}, CodeOwner::program};
    constexpr std::string_view local = "<locals>.";
    if (const auto at = place.function.rfind(local); at != place.function.npos)
        place.function.erase(0, at + local.size());
    std::string_view file = without_scheme(name.file);
    const auto root = std::ranges::find_if(
        roots_, [&](const Root& one) { return file.starts_with(one.path) && file.size() > one.path.size(); });
    if (root != roots_.end()) {
        place.owner = root->owner;
        std::size_t told = root->path.size();
        // Of ourselves the package's own name is told, too.
        if (root->owner == CodeOwner::recorder) told = root->path.rfind('/', told - 2) + 1;
        file.remove_prefix(told);
    } else if (file.starts_with("<frozen ")) {
        place.owner = CodeOwner::standard_library;
    }
    if (tells_files_) place.file = told_of(file);
    return place;
}

std::string CodePlace::shown(int line) const {
    std::string text = function;
    if (file.empty()) return text;
    text.append(" (").append(file);
    if (line) text.append(":").append(std::to_string(line));
    return text + ')';
}

void Profile::begin(std::uint64_t id) noexcept {
    id_ = id;
    told_.clear();
    of_stack_.clear();
    begun_ = false;
    new_nodes_.clear();
}

void Profile::tell(std::uint32_t number, const StackNode& node) {
    const CodePlace place = places_.of(stacks_.names()[node.code]);
    std::string& out = new_nodes_;
    out.append(out.empty() ? "{\"id\":" : ",{\"id\":").append(std::to_string(number + 1));
    if (node.caller != none) out.append(",\"parent\":").append(std::to_string(node.caller + 1));
    out.append(",\"callFrame\":{\"functionName\":");
    append_json_string(out, place.shown(node.line));
    out.append(",\"url\":");
    append_json_string(out, place.file);
    out.append(",\"scriptId\":").append(std::to_string(static_cast<unsigned>(place.owner)));
    out.append(",\"lineNumber\":").append(std::to_string(node.line)).append("}}");
}

std::uint32_t Profile::node_of(std::uint32_t stack) {
    // From the first frame inwards that has no number yet.
    std::vector<std::uint32_t> untold;
    std::uint32_t number = none;
    for (std::uint32_t at = stack; at != none; at = stacks_.nodes()[at].caller) {
        if (at < of_stack_.size() && of_stack_[at] != none) {
            number = of_stack_[at];
            break;
        }
        untold.push_back(at);
    }
    if (!untold.empty() && of_stack_.size() <= stack) of_stack_.resize(std::size_t{stack} + 1, none);
    for (; !untold.empty(); untold.pop_back()) {
        StackNode node = stacks_.nodes()[untold.back()];
        const bool has_line =
            places_.tells_files() && places_.of(stacks_.names()[node.code]).owner == CodeOwner::program;
        node = {number, node.code, has_line ? node.line : 0};
        const std::size_t before = told_.nodes().size();
        number = told_.node(node);
        if (told_.nodes().size() > before) tell(number, node);
        of_stack_[untold.back()] = number;
    }
    return number;
}

void Profile::add(const StackSample& sample, std::uint64_t at_us, std::uint64_t late) {
    const std::uint32_t node = node_of(sample.stack);
    if (!begun_) start_us_ = last_us_ = at_us;
    begun_ = true;
    const std::uint64_t now_us = std::max(at_us, last_us_);
    append_number(stacks_text_, std::int64_t{node} + 1);
    append_number(deltas_, static_cast<std::int64_t>(now_us - last_us_));
    append_number(cpu_, sample.cpu_ns < 0 ? -1 : sample.cpu_ns / 1000);
    append_number(cut_, sample.cut);
    append_number(late_, static_cast<std::int64_t>(late));
    some_late_ = some_late_ || late;
    last_us_ = now_us;
    ++samples_;
}

std::string Profile::chunk(std::int64_t ready_us) const {
    std::string text = ",\"data\":{\"cpuProfile\":{";
    if (!new_nodes_.empty()) text.append("\"nodes\":[").append(new_nodes_).append("],");
    text.append("\"samples\":[").append(stacks_text_).append("]},\"timeDeltas\":[").append(deltas_);
    text.append("],\"cpu\":[").append(cpu_).append("],\"cut\":[").append(cut_).append("]");
    if (some_late_) text.append(",\"late\":[").append(late_).append("]");
    if (ready_us != not_known) text.append(",\"ready\":").append(std::to_string(ready_us));
    if (missed_) text.append(",\"missed\":").append(std::to_string(missed_));
    return text + "}";
}

void Profile::stored() noexcept {
    for (std::string* text : {&new_nodes_, &stacks_text_, &deltas_, &cpu_, &cut_, &late_}) text->clear();
    some_late_ = false;
    samples_ = 0;
    missed_ = 0;
}

void Profile::lost() noexcept {
    const std::uint64_t missed = missed_ + samples_;
    stored();
    missed_ = missed;
}

std::string standing_stack(const StackReader& stacks, const CodePlaces& places, std::uint32_t stack,
                           bool cut) {
    constexpr int most = 32;
    std::string text;
    for (int i = 0; stack != none && i < most; ++i) {
        const StackNode& node = stacks.nodes()[stack];
        const CodePlace place = places.of(stacks.names()[node.code]);
        text.append(text.empty() ? ",\"stack\":[[" : ",[");
        append_json_string(text, place.function);
        text += ',';
        append_json_string(text, place.file);
        text.append(",").append(std::to_string(places.tells_files() ? node.line : 0));
        text.append(",").append(std::to_string(static_cast<unsigned>(place.owner))).append("]");
        stack = node.caller;
    }
    return text.empty() ? text : text + (cut ? "],\"cut\":1" : "]");
}

}  // namespace dftrace
