// Completing the trace of any dead process: lines that can be read, written in one directory only.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "checked_line.hpp"
#include "dftrace/reading/adoption.hpp"
#include "spool_program.hpp"

using namespace dftrace;
namespace fs = std::filesystem;

namespace {

std::string content(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream bytes;
    bytes << file.rdbuf();
    return bytes.str();
}

void require_trace(const fs::path& path) {
    if (path.extension() != ".pfw") return;  // compressed; the lines are the same
    const std::string text = content(path);
    if (text.empty()) return;
    if (text.substr(0, 2) != "[\n") fail("no opening", text);
    require_lines(std::string_view(text).substr(2));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
    static const std::string directory = scratch_directory() + "/traces";
    static const std::string precious = scratch_directory() + "/precious";
    const MadeSpool made = make_spool(data, bytes);
    fs::create_directory(directory);
    std::ofstream(precious) << "precious";
    if (!made.trace_name.empty()) std::ofstream(directory + "/" + made.trace_name) << made.trace;
    const AdoptionResult result = adopt_spool(made.path, {.directory = directory});
    if (result.state == Adopted::finished && fs::exists(made.path)) fail("the spool stays", made.path);
    if (result.state == Adopted::failed && result.outcome.error.empty()) fail("no reason", made.path);
    if (content(precious) != "precious") fail("written elsewhere", precious);
    for (const auto& entry : fs::directory_iterator(scratch_directory()))
        if (entry.path() != precious && entry.path() != directory && entry.path() != made.path)
            fail("made elsewhere", entry.path().string());
    for (const auto& entry : fs::directory_iterator(directory)) {
        if (result.state == Adopted::finished) require_trace(entry.path());
        fs::remove_all(entry.path());
    }
    fs::remove(made.path);
    return 0;
}
