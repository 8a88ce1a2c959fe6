// What a session stores for its records to name: names, arguments and tracks.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "dftrace/recording/thread.hpp"
#include "dftrace/recording/unit_supply.hpp"
#include "dftrace/spool/tables.hpp"

namespace dftrace {

class BlobStore {
  public:
    explicit BlobStore(UnitSupply& units) noexcept : units_(units) {}

    // Makes names [0, `upto`] known to the spool.
    void define_names(std::uint32_t upto) noexcept;
    // Stores a snapshot of arguments, 0 for none of them; nothing when there is no room. `instead_of` is
    // released with it, at less than what a release by itself costs, and is 0 then.
    std::optional<std::uint32_t> put_arguments(std::string_view json_members,
                                               std::uint32_t& instead_of) noexcept;
    // Whether a spool of which much is free would have room for them.
    bool would_take(std::string_view json_members) const noexcept;
    void release_arguments(std::uint32_t id) noexcept;

    std::uint32_t new_lane() noexcept { return next_lane_.fetch_add(1, std::memory_order_relaxed); }
    // The lane of a track that bears a name of its own, made when it is first asked for.
    std::uint32_t lane_named(Thread& thread, std::uint32_t name) noexcept;

    // The drain thread's side.

    // Stores what every part of the trace tells; without room it is told in the parts of this process alone.
    void keep_for_parts(BlobKind kind, std::uint32_t number, std::string_view text) noexcept;
    // Reads what was stored since the last call; names for which there was no room are stored first.
    void read_into(BlobTables& tables);
    // Gives back the units of arguments of which `tables` needs none any more.
    void give_back_spent(BlobTables& tables);

  private:
    template <typename Work>
    bool with_room(Work work) noexcept;
    bool append(std::vector<UnitHeader*>& chain, UnitKind unit_kind, BlobKind kind, std::uint32_t id,
                std::string_view text);
    void define_names_locked(std::uint32_t upto);

    UnitSupply& units_;

    std::mutex mutex_;  // guards the next five
    std::vector<UnitHeader*> name_units_;
    std::vector<UnitHeader*> argument_units_;
    std::uint32_t names_defined_ = 0;
    std::uint32_t names_wanted_ = 0;  // more than are defined when there was no room
    std::uint32_t next_argument_ = 1;

    std::mutex lanes_mutex_;                                            // guards the next one
    std::vector<std::pair<std::uint32_t, std::uint32_t>> named_lanes_;  // name, lane: a handful
    std::atomic<std::uint32_t> next_lane_{0};
};

}  // namespace dftrace
