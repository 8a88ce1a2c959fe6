// The module `_drain_benchmark`, which only the benches build: a made-up training loop through the real
// writer, without the threads that feed it.
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <exception>
#include <random>
#include <string>
#include <vector>

#include "dftrace/spool/settings.hpp"
#include "dftrace/system/clock.hpp"
#include "dftrace/text/hash.hpp"
#include "dftrace/writing/trace_writer.hpp"
#include "told.hpp"

namespace dftrace::py {

namespace {

struct DrainFigures {
    double seconds_cpu = 0;
    std::uint64_t bytes_plain = 0;
    std::uint64_t bytes_file = 0;
};

// One step of a loop: which span, how deep, how long in nanoseconds on average. The last lies around the
// others.
struct Phase {
    std::uint32_t name;
    std::uint16_t level;
    std::uint64_t mean_ns;
};
constexpr Phase phases[] = {{1, 2, 900'000},   {2, 3, 40'000},  {3, 3, 120'000}, {4, 3, 700'000},
                            {5, 3, 1'300'000}, {6, 3, 250'000}, {7, 1, 0}};
constexpr const char* names[] = {"fetch.iter", "item", "transfer", "forward", "backward", "step", "train"};
constexpr const char* categories[] = {"dataloader", "data",    "device",  "compute",
                                      "compute",    "compute", "pipeline"};

// Formats, compresses and writes (to a file that is removed at once) `events` spans of a training
// loop with epoch and step, by the code and in the blocks that a run uses.
DrainFigures measure_drain(std::uint64_t events, Compression compression, int level, bool index) {
    TraceSettings settings;
    settings.prefix = "/dev/shm/dftrace-drain-benchmark";
    settings.host = "host";
    settings.host_hash = hash_hex("host");
    settings.run = std::string(32, '0');
    settings.process_name_json = "\"benchmark\"";
    settings.time_base_us = 0;
    settings.compression = compression;
    settings.compression_level = level;
    Spool spool("/dev/shm/dftrace-drain-benchmark-" + std::to_string(getpid()) + ".spool", 64u << 20);
    spool.unlink();
    SpoolHeader& header = spool.header();

    UnitHeader* blobs = spool.acquire(UnitKind::names, 0);
    UnitHeader* arguments = nullptr;
    const auto put = [](UnitHeader* unit, BlobKind kind, std::uint32_t id, const std::string& text) {
        const std::uint32_t at = unit->committed.load();
        const auto bytes =
            static_cast<std::uint32_t>((sizeof(BlobHeader) + text.size() + 7) & ~std::size_t{7});
        if (at + bytes > unit->capacity) return false;
        auto* blob = reinterpret_cast<BlobHeader*>(blobs_of(unit) + at);
        *blob = {id, static_cast<std::uint32_t>(text.size()), kind, 0};
        std::memcpy(blob + 1, text.data(), text.size());
        unit->committed.store(at + bytes);
        return true;
    };
    BlobTables tables;
    for (std::uint32_t i = 0; i < std::size(names); ++i)
        put(blobs, BlobKind::name, i + 1,
            std::string("\"name\":\"") + names[i] + "\",\"cat\":\"" + categories[i] + "\"");
    tables.read(blobs);

    TraceWriter writer(settings, header, 1);
    if (!index) writer.blocks().index().give_up();
    const ClockMap clock = ClockMap::from_segments({{0, 1'000'000'000'000'000, std::uint64_t{1} << 32}});
    Track track;
    track.tid = header.pid;
    track.name = "MainThread";
    UnitHeader* unit = spool.acquire(UnitKind::ring, 1);
    std::mt19937_64 random(7);
    std::uint64_t now = 0, id = 1, step = 0, step_start = 0, step_id = 0;
    double seconds = 0;
    int error = 0;
    for (std::uint64_t done = 0; done < events && !error;) {
        std::uint32_t filled = 0;
        while (filled < unit->capacity && done < events) {
            const Phase& phase = phases[done % std::size(phases)];
            if (done % std::size(phases) == 0) {
                ++step;
                step_start = now;
                step_id = id++;
                const std::string text =
                    ",\"epoch\":" + std::to_string(step / 1000) + ",\"step\":" + std::to_string(step);
                if (!arguments ||
                    !put(arguments, BlobKind::arguments, static_cast<std::uint32_t>(step), text)) {
                    arguments = spool.acquire(UnitKind::arguments, 0);
                    if (!arguments) throw std::bad_alloc();
                    put(arguments, BlobKind::arguments, static_cast<std::uint32_t>(step), text);
                }
                tables.read(arguments);
            }
            Record& r = records_of(unit)[filled++];
            r = Record{};
            r.start = now + 300 + random() % 700;
            r.end = r.start + (phase.mean_ns ? phase.mean_ns / 2 + random() % phase.mean_ns : 0);
            now = r.end;
            const bool around = phase.mean_ns == 0;
            if (around) r.start = step_start;
            r.id = around ? step_id : id++;
            r.parent = around ? 0 : step_id;
            r.node = phase.name;
            r.args = static_cast<std::uint32_t>(step);
            r.level = phase.level;
            r.kind = Kind::span;
            ++done;
        }
        const std::uint64_t before = clock_ns(CLOCK_THREAD_CPUTIME_ID);
        std::uint32_t scan = 0;
        error = writer.records(unit, scan, filled, track, tables, clock);
        if (!error && done == events) error = writer.finish({"finalize"});
        seconds += 1e-9 * static_cast<double>(clock_ns(CLOCK_THREAD_CPUTIME_ID) - before);
    }
    const WriteMark& mark = header.marks[header.write_number.load() % 2];
    ::unlink(writer.path().c_str());
    if (error) throw std::runtime_error(std::strerror(error));
    return {seconds, mark.plain_bytes, mark.file_bytes};
}

PyObject* drain(PyObject*, PyObject* arguments) {
    unsigned long long events = 0;
    const char* compression = nullptr;
    int level = 0, index = 1;
    if (!PyArg_ParseTuple(arguments, "Ks|ip", &events, &compression, &level, &index)) return nullptr;
    try {
        DrainFigures figures;
        const Compression wanted = compression_from(compression);
        without_gil([&] { figures = measure_drain(events, wanted, level, index != 0); });
        return dict_told({{"events", told(events)},
                          {"seconds_cpu", told(figures.seconds_cpu)},
                          {"bytes_plain", told(figures.bytes_plain)},
                          {"bytes_file", told(figures.bytes_file)}});
    } catch (const std::exception& error) {
        PyErr_SetString(PyExc_ValueError, error.what());
        return nullptr;
    }
}

PyMethodDef functions[] = {{"drain", drain, METH_VARARGS,
                            "drain(events, compression, level=0, index=True): CPU time and bytes of writing "
                            "a training loop's events."},
                           {nullptr, nullptr, 0, nullptr}};

PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "_drain_benchmark",
                          "The drain of dftrace_ai, by itself.",
                          0,
                          functions,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

}  // namespace

}  // namespace dftrace::py

PyMODINIT_FUNC PyInit__drain_benchmark() {
    dftrace::calibrate_tick_source();
    return PyModule_Create(&dftrace::py::definition);
}
