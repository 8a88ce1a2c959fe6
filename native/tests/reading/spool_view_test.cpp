// Looking into a dead process's spool: what is cut off or broken is told, and all else is still read.
#include "dftrace/reading/spool_view.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "check.hpp"
#include "dead_run.hpp"
#include "dftrace/reading/adoption.hpp"
#include "scratch.hpp"
#include "span_scope.hpp"

using namespace dftrace;
namespace fs = std::filesystem;

namespace {

// A spool with units of every kind, among them an argument that takes three.
class Sample {
  public:
    Sample() {
        whole_ = leave_spool(dir_, unwritten(dir_.settings()), [] {
            EventName name("view", "span");
            for (int i = 0; i < 4000; ++i) {
                SpanScope span(name);
                if (i == 2000)
                    record_now(Kind::instant, name, ",\"x\":\"" + std::string(150'000, 'x') + "\"");
                if (i % 100 == 0) record_now(Kind::instant, name, ",\"i\":" + std::to_string(i));
            }
        });
        bytes_ = file_bytes(whole_);
        const OpenedSpool opened(whole_);
        for (std::size_t i = 1; i < opened.units(); i += opened.unit(i).units) {
            REQUIRE_EQ(opened.unit(i).magic, unit_magic);
            starts_.push_back(i);
            kinds_.push_back(opened.unit(i).kind);
        }
    }
    // A fresh copy of `bytes`.
    std::string copy(const std::string& bytes) const {
        const std::string path = dir_.file("copy");
        std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
        return path;
    }
    const std::string& bytes() const { return bytes_; }
    // Number of the first unit of each run of units, and what is in it.
    const std::vector<std::size_t>& starts() const { return starts_; }
    const std::vector<UnitKind>& kinds() const { return kinds_; }
    const ScratchDir& dir() const { return dir_; }

  private:
    ScratchDir dir_;
    std::string whole_;
    std::string bytes_;
    std::vector<std::size_t> starts_;
    std::vector<UnitKind> kinds_;
};

struct Found {
    std::vector<std::size_t> units;  // their numbers in the file
    std::vector<std::string> damage;
};

Found look(const std::string& path) {
    SpoolView view(path);
    Found found;
    std::uint64_t sequence = 0;
    for (UnitHeader* unit : view.units(found.damage)) {
        CHECK(unit->sequence > sequence);
        sequence = unit->sequence;
        const auto offset = reinterpret_cast<char*>(unit) - reinterpret_cast<char*>(&view.header());
        found.units.push_back(static_cast<std::size_t>(offset) / unit_bytes);
    }
    std::sort(found.units.begin(), found.units.end());
    return found;
}

std::string refusal(const std::string& path) {
    try {
        SpoolView view(path);
        return "";
    } catch (const std::runtime_error& error) {
        return error.what();
    }
}

}  // namespace

TEST("a whole spool is read in the order in which its units were taken") {
    const Sample sample;
    const Found found = look(sample.copy(sample.bytes()));
    CHECK(found.units == sample.starts());
    CHECK(found.damage.empty());
    for (const UnitKind kind : {UnitKind::thread, UnitKind::ring, UnitKind::names, UnitKind::arguments})
        CHECK(std::count(sample.kinds().begin(), sample.kinds().end(), kind) > 0);
}

TEST("a spool that is cut anywhere gives the units before, and says how many are missing") {
    const Sample sample;
    const std::size_t units = sample.bytes().size() / unit_bytes;
    for (std::size_t left = 1; left < units; ++left)
        for (const std::size_t more : {0u, 1u, 64u, 40'000u, 65'535u}) {
            const Found found = look(sample.copy(sample.bytes().substr(0, left * unit_bytes + more)));
            // Those that end before the cut.
            std::vector<std::size_t> wanted;
            bool run_is_cut = false;
            for (std::size_t i = 0; i < sample.starts().size(); ++i) {
                const std::size_t start = sample.starts()[i];
                const std::size_t end = i + 1 < sample.starts().size() ? sample.starts()[i + 1] : units;
                if (end <= left)
                    wanted.push_back(start);
                else
                    run_is_cut |= start < left;
            }
            CHECK(found.units == wanted);
            REQUIRE(!found.damage.empty());
            CHECK_EQ(found.damage[0], std::to_string(units - left) +
                                          (units - left == 1 ? " unit" : " units") + " cut off at the end");
            CHECK_EQ(found.damage.size() > 1, run_is_cut);
        }
    CHECK(refusal(sample.copy(sample.bytes().substr(0, unit_bytes - 1))) != "");
    CHECK(refusal(sample.copy("")) != "");
}

TEST("one broken unit costs itself and nothing else") {
    const Sample sample;
    using Breaks = void (*)(UnitHeader&);
    const Breaks ways[] = {
        [](UnitHeader& unit) { unit.magic = 0x12345678; },
        [](UnitHeader& unit) { unit.kind = static_cast<UnitKind>(99); },
        [](UnitHeader& unit) { unit.units = 0; },
        [](UnitHeader& unit) { unit.units = 0xFFFF'FFFF; },
        [](UnitHeader& unit) { unit.capacity = 0xFFFF'FFFF; },
        [](UnitHeader& unit) { std::memset(static_cast<void*>(&unit), 0xFF, sizeof unit); },
    };
    for (const Breaks breaks : ways)
        for (std::size_t i = 0; i < sample.starts().size(); ++i) {
            const std::string path = sample.copy(sample.bytes());
            {
                const OpenedSpool opened(path);
                breaks(opened.unit(sample.starts()[i]));
            }
            const Found found = look(path);
            std::vector<std::size_t> wanted = sample.starts();
            wanted.erase(wanted.begin() + static_cast<std::ptrdiff_t>(i));
            CHECK(found.units == wanted);
            REQUIRE_EQ(found.damage.size(), 1);
            CHECK(found.damage[0].find("without a sound header") != std::string::npos);
        }
}

TEST("the trace of a damaged spool holds all that is sound, and its footer says that something is not") {
    const Sample sample;
    for (std::size_t i = 0; i < sample.starts().size(); ++i) {
        const std::string path = sample.copy(sample.bytes());
        {
            const OpenedSpool opened(path);
            opened.unit(sample.starts()[i]).magic = 1;
        }
        const AdoptionResult result = adopt_spool(path, {.directory = sample.dir().path()});
        REQUIRE(result.state == Adopted::finished);
        CHECK(!result.damage.empty());
        const Trace trace = read_trace(result.outcome.trace_path);
        const Footer footer = check_complete(trace, "died");
        CHECK_EQ(footer.number("damaged"), result.damage.size());
        const bool records = sample.kinds()[i] == UnitKind::thread || sample.kinds()[i] == UnitKind::ring;
        CHECK_EQ(footer.number("spans") < 4000, records);
        CHECK(footer.number("spans") > 2500);
        const bool named = trace.text.find("(damaged)") != std::string::npos;
        CHECK_EQ(named, sample.kinds()[i] == UnitKind::thread);
        fs::remove(result.outcome.trace_path);
    }
}

TEST("units that were just being taken are no damage") {
    const Sample sample;
    const std::string path = sample.copy(sample.bytes() + std::string(3 * unit_bytes, '\0'));
    {
        const OpenedSpool opened(path);
        opened.header().units.fetch_add(3);
        // Reserved, half set up, given back.
        opened.unit(opened.units() - 2).owner = 7;
        opened.unit(opened.units() - 1).magic = unit_magic;
        opened.unit(opened.units() - 1).units = 1;
    }
    const Found found = look(path);
    CHECK(found.units == sample.starts());
    CHECK(found.damage.empty());
}

TEST("what is no spool of this version is refused in words") {
    const Sample sample;
    const auto changed = [&](auto change) {
        const std::string path = sample.copy(sample.bytes());
        change(OpenedSpool(path).header());
        return refusal(path);
    };
    CHECK_EQ(changed([](SpoolHeader&) {}), "");
    CHECK_EQ(changed([](SpoolHeader& h) { h.magic = 0; }), "not a spool");
    CHECK_EQ(changed([](SpoolHeader& h) { h.unit_size = 4096; }), "not a spool");
    CHECK_EQ(changed([](SpoolHeader& h) { h.record_size = 128; }), "not a spool");
    CHECK(changed([](SpoolHeader& h) { h.version = 9; }).find("version 9") != std::string::npos);
    REQUIRE(mkfifo(sample.dir().file("pipe").c_str(), 0600) == 0);
    CHECK_EQ(refusal(sample.dir().file("pipe")), "not a spool");
    CHECK(refusal(sample.dir().path()) != "");
    CHECK(refusal(sample.dir().file("missing")) != "");
    fs::create_symlink(sample.copy(sample.bytes()), sample.dir().file("link"));
    CHECK(refusal(sample.dir().file("link")) != "");
}

TEST("a spool is looked at by one adopter at a time, who leaves no descriptor behind") {
    const Sample sample;
    const std::string path = sample.copy(sample.bytes());
    const std::size_t before = open_descriptors();
    {
        SpoolView first(path), second(path);
        CHECK(first.lock());
        CHECK(!second.lock());
    }
    SpoolView third(path);
    CHECK(third.lock());
    CHECK_EQ(open_descriptors(), before + 2);  // the file and its directory
    CHECK_THROWS(std::runtime_error, SpoolView(sample.copy("short")));
}

TEST("a file that is cut while it is read is no fault of who reads it, and is told") {
    const Sample sample;
    const std::string path = sample.copy(sample.bytes());
    SpoolView view(path);
    std::vector<std::string> damage;
    const std::vector<UnitHeader*> units = view.units(damage);
    CHECK(!view.cut_meanwhile());
    fs::resize_file(path, 0);
    for (UnitHeader* unit : units) {
        view.load(unit);
        const std::uint32_t count = std::min(unit->committed.load(), unit->capacity);
        if (unit->kind == UnitKind::ring && count) CHECK_EQ(records_of(unit)[count - 1].id, 0);
        view.let_go(unit);
        unit->consumed = 1;
        CHECK_EQ(view.keep(*unit), 0);
    }
    CHECK(view.cut_meanwhile());
    CHECK_THROWS(std::runtime_error, view.lock());
}

TEST("what somebody stores in the file while it is read does not reach what was found sound") {
    const Sample sample;
    const std::string path = sample.copy(sample.bytes());
    SpoolView view(path);
    std::vector<std::string> damage;
    const std::vector<UnitHeader*> units = view.units(damage);
    std::vector<std::uint32_t> capacities;
    for (const UnitHeader* unit : units) capacities.push_back(unit->capacity);
    const OpenedSpool opened(path);
    std::memset(opened.data(), 0xFF, opened.bytes());
    for (std::size_t i = 0; i < units.size(); ++i) {
        view.load(units[i]);
        CHECK_EQ(units[i]->capacity, capacities[i]);
    }
}

TEST("a file of holes costs neither time nor memory nor disk") {
    const Sample sample;
    const std::string path = sample.copy(sample.bytes());
    constexpr std::uint32_t claimed = 1u << 21;  // 128 GiB
    OpenedSpool(path).header().units.store(claimed);
    fs::resize_file(path, std::uintmax_t{claimed} * unit_bytes);
    struct stat before {
    }, after{};
    REQUIRE(stat(path.c_str(), &before) == 0);
    const Found found = look(path);
    CHECK(found.units == sample.starts());
    CHECK(found.damage.empty());
    REQUIRE(stat(path.c_str(), &after) == 0);
    CHECK_EQ(after.st_blocks, before.st_blocks);
}
