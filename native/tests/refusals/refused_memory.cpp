// The program's own `new` and `delete`.
#include "refused_memory.hpp"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

std::atomic<bool> counting{false};
std::atomic<std::uint64_t> asked{0};
std::atomic<std::uint64_t> first_refused{0};
std::atomic<std::uint64_t> first_granted{0};

void* memory(std::size_t bytes) noexcept {
    if (counting.load()) {
        const std::uint64_t number = asked.fetch_add(1);
        if (number >= first_refused.load() && number < first_granted.load()) return nullptr;
    }
    return std::malloc(bytes ? bytes : 1);
}

void* memory_or_throw(std::size_t bytes) {
    void* const found = memory(bytes);
    if (!found) throw std::bad_alloc();
    return found;
}

}  // namespace

RefusedMemory::RefusedMemory(std::uint64_t granted, std::uint64_t refused) {
    asked.store(0);
    first_refused.store(granted);
    first_granted.store(refused > ~granted ? ~std::uint64_t{0} : granted + refused);
    counting.store(true);
}

RefusedMemory::~RefusedMemory() { counting.store(false); }

bool RefusedMemory::came() const noexcept { return asked.load() > first_refused.load(); }

void* operator new(std::size_t bytes) { return memory_or_throw(bytes); }
void* operator new[](std::size_t bytes) { return memory_or_throw(bytes); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return memory(bytes); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return memory(bytes); }
void operator delete(void* at) noexcept { std::free(at); }
void operator delete[](void* at) noexcept { std::free(at); }
void operator delete(void* at, std::size_t) noexcept { std::free(at); }
void operator delete[](void* at, std::size_t) noexcept { std::free(at); }
void operator delete(void* at, const std::nothrow_t&) noexcept { std::free(at); }
void operator delete[](void* at, const std::nothrow_t&) noexcept { std::free(at); }
