// The template and the instructions.
#include "spool_program.hpp"

#include <fuzzer/FuzzedDataProvider.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

#include "checked_line.hpp"
#include "dftrace/spool/settings.hpp"
#include "dftrace/spool/spool.hpp"
#include "dftrace/system/host_name.hpp"
#include "dftrace/text/hash.hpp"

using namespace dftrace;

namespace {

constexpr std::size_t template_units = 6;  // header, names, arguments, a thread's first, two rings
constexpr std::size_t most_units = 10;

// Aligned as a mapping is.
struct alignas(4096) Image {
    char bytes[most_units * unit_bytes];
    SpoolHeader& header() { return *reinterpret_cast<SpoolHeader*>(bytes); }
    UnitHeader& unit(std::size_t index) { return *reinterpret_cast<UnitHeader*>(bytes + index * unit_bytes); }
};

TraceSettings plain_settings() {
    TraceSettings s;
    s.prefix = "/nowhere/trace";
    s.host = host_name();
    s.host_hash = hash_hex(s.host);
    s.run = std::string(32, '0');
    s.process_name_json = "\"fuzzed\"";
    s.compression = Compression::none;
    s.block_bytes = 4096;
    return s;
}

void put_settings(SpoolHeader& h, const TraceSettings& settings) {
    const std::string encoded = settings.encode();
    h.settings_bytes = static_cast<std::uint32_t>(encoded.copy(h.settings, sizeof h.settings));
}

void put_blob(UnitHeader& unit, BlobKind kind, std::uint32_t id, std::string_view text) {
    const std::uint32_t at = unit.committed.load();
    const std::size_t bytes = (sizeof(BlobHeader) + text.size() + 7) & ~std::size_t{7};
    if (at % 8 || at + bytes > unit_bytes - sizeof(UnitHeader)) return;
    auto* blob = reinterpret_cast<BlobHeader*>(blobs_of(&unit) + at);
    *blob = {id, static_cast<std::uint32_t>(text.size()), kind, 0};
    text.copy(reinterpret_cast<char*>(blob + 1), text.size());
    unit.committed.store(at + static_cast<std::uint32_t>(bytes));
}

// Two records each in the three units of a thread that is inside of two spans.
std::unique_ptr<Image> make_template() {
    auto image = std::make_unique<Image>();
    const std::string path = scratch_directory() + "/template";
    Spool spool(path, most_units * unit_bytes);
    spool.unlink();
    SpoolHeader& h = spool.header();
    h.pid = 0x7FFF'FFFF;
    std::memset(h.boot_id, 0, sizeof h.boot_id);
    std::strcpy(h.boot_id, "another boot");
    h.clock[0] = {1000, 1'700'000'000'000'000'000, std::uint64_t{1} << 32};
    h.clock_segments.store(1);
    put_settings(h, plain_settings());
    UnitHeader* names = spool.acquire(UnitKind::names, 0);
    put_blob(*names, BlobKind::name, 1, R"("name":"forward","cat":"compute")");
    put_blob(*names, BlobKind::name, 2, R"("ValueError")");
    UnitHeader* arguments = spool.acquire(UnitKind::arguments, 0);
    put_blob(*arguments, BlobKind::arguments, 1, ",\"epoch\":1");
    put_blob(*arguments, BlobKind::arguments, 2, ",\"epoch\":2");
    std::uint64_t id = 0;
    for (const UnitKind kind : {UnitKind::thread, UnitKind::ring, UnitKind::ring}) {
        UnitHeader* unit = spool.acquire(kind, 1);
        for (int i = 0; i < 2; ++i, ++id) {
            Record& r = records_of(unit)[i];
            r = Record{};
            r.start = 2000 + 100 * id;
            r.end = r.start + 50;
            r.id = id + 1;
            r.node = 1;
            r.args = static_cast<std::uint32_t>(id % 3);
            r.level = 3;
            r.kind = Kind::span;
        }
        unit->committed.store(2);
        if (kind != UnitKind::thread) continue;
        auto* block = reinterpret_cast<ThreadBlock*>(unit);
        block->tid = 77;
        std::strcpy(block->name, "worker");
        block->open[0] = {90, 1500, 0, 1, 1, 0, 1, 1};
        block->open[1] = {91, 1600, 90, 1, 2, 0, 2, 1};
        block->depth.store(2);
    }
    std::memcpy(image->bytes, reinterpret_cast<const char*>(&h), template_units * unit_bytes);
    return image;
}

std::uint64_t number(FuzzedDataProvider& input) {
    switch (input.ConsumeIntegralInRange(0, 4)) {
        case 0: return input.ConsumeIntegral<std::uint8_t>();
        case 1: return std::uint64_t{1} << input.ConsumeIntegralInRange(0, 63);
        case 2: return UINT64_MAX - input.ConsumeIntegral<std::uint8_t>();
        case 3:
            return unit_bytes * input.ConsumeIntegral<std::uint8_t>() - input.ConsumeIntegral<std::uint8_t>();
        default: return input.ConsumeIntegral<std::uint64_t>();
    }
}

void patch(Image& image, std::size_t at, std::uint64_t value, std::size_t bytes) {
    if (at + bytes <= sizeof image.bytes) std::memcpy(image.bytes + at, &value, bytes);
}

std::size_t unit_number(FuzzedDataProvider& input) {
    return input.ConsumeIntegralInRange<std::size_t>(1, most_units - 1);
}

void put_record(Image& image, FuzzedDataProvider& input) {
    UnitHeader& unit = image.unit(unit_number(input));
    Record& r = reinterpret_cast<Record*>(reinterpret_cast<char*>(&unit) +
                                          thread_block_bytes)[input.ConsumeIntegralInRange(0, 8)];
    if (unit.kind == UnitKind::ring) records_of(&unit)[0].lane = input.ConsumeIntegral<std::uint32_t>();
    r.start = number(input);
    r.end = number(input);
    r.id = number(input);
    r.node = input.ConsumeIntegral<std::uint8_t>();
    r.args = input.ConsumeIntegral<std::uint8_t>();
    r.error = input.ConsumeIntegralInRange<std::uint32_t>(0, 3);
    r.lane = static_cast<std::uint32_t>(number(input));
    r.value = number(input);
    r.kind = static_cast<Kind>(input.ConsumeIntegralInRange(0, 9));
    r.flags = input.ConsumeIntegral<std::uint8_t>();
}

void put_open_span(Image& image, FuzzedDataProvider& input) {
    auto& block = reinterpret_cast<ThreadBlock&>(image.unit(3));
    OpenSpan& span = input.ConsumeBool() ? block.open[input.ConsumeIntegralInRange(0, 3)]
                                         : block.tasks[input.ConsumeIntegralInRange(0, 3)];
    span = {number(input),
            number(input),
            number(input),
            input.ConsumeIntegral<std::uint8_t>(),
            input.ConsumeIntegral<std::uint8_t>(),
            static_cast<std::uint32_t>(number(input)),
            1,
            1};
    block.depth.store(static_cast<std::uint32_t>(number(input)));
    block.task_slots = static_cast<std::uint32_t>(number(input));
    block.tid = static_cast<std::uint32_t>(number(input));
}

void change_settings(Image& image, FuzzedDataProvider& input) {
    TraceSettings s = plain_settings();
    s.prefix = input.ConsumeRandomLengthString(30);
    s.header_json = input.ConsumeRandomLengthString(30);
    s.process_name_json = input.ConsumeBool() ? "\"x\"" : input.ConsumeRandomLengthString(10);
    s.cwd_json = input.ConsumeBool() ? "" : input.ConsumeRandomLengthString(10);
    s.time_base_us = number(input);
    s.block_bytes = number(input);
    s.max_file_bytes = input.ConsumeBool() ? 0 : 3000;
    s.max_files = input.ConsumeIntegralInRange<std::uint32_t>(0, 2);
    s.flight_recorder = input.ConsumeBool();
    s.flight_ns = number(input);
    s.epoch_us = input.ConsumeBool();
    s.shown_pid = static_cast<std::uint32_t>(number(input));
    put_settings(image.header(), s);
}

// A trace that is there, and marks that tell of it: the write before the last, or the last, landed.
void leave_trace(Image& image, FuzzedDataProvider& input, MadeSpool& made) {
    const std::string line = "{\"name\":\"before\",\"cat\":\"c\",\"ph\":\"M\",\"pid\":1}\n";
    made.trace = "[\n";
    for (int i = input.ConsumeIntegralInRange(0, 20); i > 0; --i) made.trace += line;
    made.trace_name = "trace-before.pfw";
    SpoolHeader& h = image.header();
    const std::uint64_t write = input.ConsumeIntegralInRange<std::uint64_t>(0, 3);
    h.write_number.store(write);
    h.landed.store(input.ConsumeBool() ? write : 0);
    for (std::uint64_t n : {write, write + 1}) {
        WriteMark& mark = h.marks[n % 2];
        mark.file_bytes = made.trace.size() + (n > write || input.ConsumeBool() ? 0 : line.size());
        mark.lines.fill(number(input));
        mark.earlier_lines.fill(number(input));
        mark.lanes = static_cast<std::uint32_t>(number(input));
        mark.stage = static_cast<TraceStage>(input.ConsumeIntegralInRange(0, 3));
        mark.part = input.ConsumeIntegralInRange<std::uint32_t>(0, 2);
        mark.closed = input.ConsumeBool();
    }
    // Cut in two places only: where lines end.
    h.marks[(write + 1) % 2].file_bytes = input.ConsumeBool() ? 0 : 2;
    for (TracePath& path : h.trace_paths)
        path.set(input.ConsumeIntegralInRange<std::uint32_t>(0, 2), "/x/" + made.trace_name);
}

// A process that died while the machine stayed up.
void tell_of_this_boot(SpoolHeader& h) {
    const ProcessIdentity self = ProcessIdentity::self();
    self.boot_id.copy(h.boot_id, sizeof h.boot_id);
    h.pid_namespace = self.pid_namespace;
}

}  // namespace

const std::string& scratch_directory() {
    static const struct Scratch {
        std::string path = "/dev/shm/dftrace-fuzz-XXXXXX";
        Scratch() {
            if (!mkdtemp(path.data())) std::abort();
        }
        ~Scratch() {
            std::error_code ignored;  // what is left in memory goes with the machine
            std::filesystem::remove_all(path, ignored);
        }
    } scratch;
    return scratch.path;
}

MadeSpool make_spool(const std::uint8_t* data, std::size_t bytes) {
    static const std::unique_ptr<Image> original = make_template();
    static const auto image = std::make_unique<Image>();
    std::memcpy(image->bytes, original->bytes, sizeof image->bytes);
    MadeSpool made{scratch_directory() + "/fuzzed.spool", {}, {}};
    std::size_t file_bytes = template_units * unit_bytes;
    FuzzedDataProvider input(data, bytes);
    while (input.remaining_bytes()) {
        switch (input.ConsumeIntegralInRange(0, 10)) {
            case 0:
                patch(*image, input.ConsumeIntegralInRange<std::size_t>(0, sizeof(SpoolHeader)),
                      number(input), 8);
                break;
            case 1:
                patch(*image,
                      unit_number(input) * unit_bytes + 4 * input.ConsumeIntegralInRange<std::size_t>(0, 15),
                      number(input), 4);
                break;
            case 2: {
                const std::size_t at =
                    unit_number(input) * unit_bytes + input.ConsumeIntegral<std::uint16_t>();
                const std::string raw = input.ConsumeRandomLengthString(64);
                if (at + raw.size() <= sizeof image->bytes) raw.copy(image->bytes + at, raw.size());
                break;
            }
            case 3: put_record(*image, input); break;
            case 4: {
                UnitHeader& unit = image->unit(input.ConsumeIntegralInRange<std::size_t>(1, 2));
                const auto kind = static_cast<BlobKind>(input.ConsumeIntegralInRange(0, 4));
                const auto id = static_cast<std::uint32_t>(number(input));
                put_blob(unit, kind, id, input.ConsumeRandomLengthString(60));
                break;
            }
            case 5: file_bytes = input.ConsumeIntegralInRange<std::size_t>(0, sizeof image->bytes); break;
            case 6: put_open_span(*image, input); break;
            case 7: change_settings(*image, input); break;
            case 8: leave_trace(*image, input, made); break;
            case 9: {
                const std::size_t index = unit_number(input);
                std::memcpy(image->bytes + index * unit_bytes,
                            original->bytes + (1 + index % (template_units - 1)) * unit_bytes, unit_bytes);
                image->unit(index).sequence = number(input);
                image->unit(index).owner = input.ConsumeIntegralInRange<std::uint32_t>(0, 3);
                image->header().units.store(most_units);
                file_bytes = sizeof image->bytes;
                break;
            }
            case 10: tell_of_this_boot(image->header()); break;
        }
    }
    std::FILE* file = std::fopen(made.path.c_str(), "wb");
    if (!file || std::fwrite(image->bytes, 1, file_bytes, file) != file_bytes) fail("no room", made.path);
    std::fclose(file);
    return made;
}
