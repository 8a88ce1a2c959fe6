// Types that take the blocks of a trace and give some of its lines.
#pragma once

#include <initializer_list>
#include <memory>
#include <vector>

#include "dftrace/reading/traces/line_walk.hpp"
#include "dftrace/reading/traces/members.hpp"
#include "python.hpp"

namespace dftrace::py {

struct Walking {
    virtual ~Walking() = default;
    virtual LineWalk& walk() = 0;
    // To the next line that is given; false behind the last one.
    virtual bool step() = 0;
    // The walk has a block of so many bytes of the file, which says so much of itself.
    virtual void take_facts(const BlockFacts&, std::uint64_t) {}
    std::unique_ptr<BlockByBlock> blocks;
};

struct WalkingObject {
    PyObject_HEAD std::unique_ptr<Walking> walking;
    bool busy;
};

// True with an exception set where another thread reads by the object.
bool is_busy(PyObject* object);

// An object of the type, with what `make` gives.
template <typename Make>
PyObject* new_walking(PyTypeObject* type, Make make) {
    Ref made(type->tp_alloc(type, 0));
    if (!made) return nullptr;
    WalkingObject* const self = as<WalkingObject>(made.get());
    new (&self->walking) std::unique_ptr<Walking>();
    try {
        self->walking = make();
    } catch (const std::bad_alloc&) {
        return PyErr_NoMemory();
    }
    return made.release();
}
void destroy_walking(PyObject* object);

// What a type of its own has, and what all have, up to the end that Python looks for. The type refers to it,
// so it must live as long.
std::vector<PyMethodDef> with_walking_methods(std::initializer_list<PyMethodDef> own);
std::vector<PyGetSetDef> with_walking_members(std::initializer_list<PyGetSetDef> own);

}  // namespace dftrace::py
