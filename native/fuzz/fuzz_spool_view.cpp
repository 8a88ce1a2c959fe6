// Looking into any file that may be a spool: units, their records, names, arguments, settings, clock.
#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "checked_line.hpp"
#include "dftrace/reading/spool_view.hpp"
#include "dftrace/spool/tables.hpp"
#include "dftrace/text/json_check.hpp"
#include "spool_program.hpp"

using namespace dftrace;

namespace {

void look(const std::string& path) {
    SpoolView spool(path);
    std::vector<std::string> damage;
    BlobTables tables(true);
    std::uint64_t sum = 0;
    for (UnitHeader* unit : spool.units(damage)) {
        spool.load(unit);
        if (unit->kind == UnitKind::names || unit->kind == UnitKind::arguments) {
            tables.read(unit);
            continue;
        }
        const std::uint32_t count = std::min(unit->committed.load(), unit->capacity);
        for (std::uint32_t i = 0; i < count; ++i) sum += records_of(unit)[i].id;
        spool.let_go(unit);
    }
    for (std::uint32_t id = 0; id < 70'000; id += id < 300 ? 1 : 997) {
        const std::string_view name = tables.name(id), args = tables.arguments(id);
        const std::string_view type = tables.exception_type(id);
        if (!name.empty() && !is_json_name(name)) fail("no name", name);
        if (!type.empty() && !is_json_string(type)) fail("no type", type);
        if (!is_json_members(args)) fail("no arguments", args);
    }
    static_cast<void>(spool.settings());
    static_cast<void>(spool.clock().to_ns(sum));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
    const MadeSpool made = make_spool(data, bytes);
    try {
        look(made.path);
    } catch (const std::exception&) {
        // Refused in words, which is what a reader shows.
    }
    return 0;
}
