// Stacks as a tree: each is told by the frame that it ends in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace dftrace {

struct StackNode {
    static constexpr std::uint32_t no_caller = UINT32_MAX;

    std::uint32_t caller;  // a node that came before
    std::uint32_t code;    // number of its name
    int line;
    bool operator==(const StackNode&) const = default;
};

class StackTable {
  public:
    // The number of this node, which may be new.
    std::uint32_t node(const StackNode& node) {
        const auto [found, fresh] = numbers_.try_emplace(node, static_cast<std::uint32_t>(nodes_.size()));
        if (fresh) nodes_.push_back(node);
        return found->second;
    }
    const std::vector<StackNode>& nodes() const noexcept { return nodes_; }
    void clear() noexcept {
        numbers_.clear();
        nodes_.clear();
    }

  private:
    struct Hash {
        std::size_t operator()(const StackNode& node) const noexcept {
            const std::uint64_t low = std::uint64_t{node.caller} << 32 | node.code;
            return static_cast<std::size_t>((low ^ static_cast<std::uint64_t>(node.line) << 20) *
                                            0x9e37'79b9'7f4a'7c15u);
        }
    };
    std::unordered_map<StackNode, std::uint32_t, Hash> numbers_;
    std::vector<StackNode> nodes_;
};

}  // namespace dftrace
