// Events that are not spans of nodes: instants, counters, flows, metadata, spans with given times. Each is
// one record with arguments of its own.
#include "annotation/span.hpp"

#include <algorithm>
#include <new>
#include <optional>
#include <string>

#include "arguments/json_args.hpp"
#include "dftrace/text/json_string.hpp"
#include "dftrace/text/names.hpp"
#include "parts.hpp"

namespace dftrace::py {

namespace {

// Where an event of this moment belongs. Finding out may run Python code (a value's __str__, a look
// at asyncio), and during it another thread may end the run: so everything of that kind comes
// before the thread's state is fetched.
struct Place {
    Thread* thread = nullptr;
    EnclosingSpan around;
};

Place find_place() {
    task_context();
    Place place;
    place.thread = recording_thread();
    if (place.thread) place.around = enclosing_span(place.thread);
    return place;
}

// When something was, and in which span; kept by whoever tells of it later.
struct Moment {
    unsigned long long time_ns = 0;
    unsigned long long span = 0;
    unsigned long long level = 0;
    unsigned long long generation = 0;  // of the run that the span belongs to
    bool given = false;
};

// What an event carries, each stored for its one record alone.
struct Content {
    Kind kind;
    std::uint32_t name;
    std::string members;
    std::uint64_t sanitised = 0;
    std::uint64_t value = 0;
    std::uint64_t start_ns = 0;  // with end_ns: given times; else now
    std::uint64_t end_ns = 0;
    std::uint64_t start_tick = 0;  // with end_tick: times as `ticks` has them
    std::uint64_t end_tick = 0;
    std::uint32_t track = 0;  // name of a track apart from that of the thread
    Moment moment;            // given: the span around it, too
};

// The lane of an event: a track of its own, the thread's, or that of the task around it.
std::uint32_t lane_of(const Place& place, const Content& content) {
    if (content.track) return place.thread->session->lane_named(*place.thread, content.track);
    return content.kind == Kind::counter || content.end_ns ? 0 : place.around.lane;
}

bool put_record(const Place& place, const Content& content, Kind kind, std::uint64_t start,
                std::uint32_t args) {
    const std::uint32_t lane = lane_of(place, content);
    Record* r = place.thread->reserve();
    if (!r) return false;
    *r = Record{};
    r->start = start;
    r->end = content.end_tick ? content.end_tick : content.end_ns;
    if (content.end_ns) r->flags = RecordFlag::absolute_time;
    r->id = place.thread->new_id();
    r->parent = place.around.id;
    r->level = static_cast<std::uint16_t>(place.around.level + 1);
    r->lane = lane;
    r->node = content.name;
    r->args = args;
    r->value = content.value;
    r->kind = kind;
    place.thread->commit();
    return true;
}

void record(const Content& content) {
    Place place = find_place();
    if (!place.thread) {
        count_event_without_thread();
        return;
    }
    if (const Moment& moment = content.moment; moment.given) {
        // A span of an earlier run, or of the parent before a fork, is not in this trace.
        const bool ours = moment.generation == place.thread->generation;
        place.around =
            ours ? EnclosingSpan{moment.span, static_cast<std::uint16_t>(moment.level), 0} : EnclosingSpan{};
    }
    // An arrow needs a span to start or end in; Perfetto counts an error for one that has none.
    const bool is_flow = content.kind == Kind::flow_in || content.kind == Kind::flow_out;
    if (is_flow && !place.around.id) {
        place.thread->session->count_sanitised(1);
        return;
    }
    Session* session = place.thread->session;
    session->define_names(content.name);
    const std::optional<std::uint32_t> args = session->put_arguments(content.members);
    if (!args) {
        session->count_dropped();
        return;
    }
    const std::uint64_t start = content.end_tick ? content.start_tick
                                : content.end_ns ? content.start_ns
                                                 : place.thread->tick();
    // Perfetto ties an arrow to the slice of the track that began last, though it may have ended, and
    // turns the arrow round when the slice at its head began before the other: so each end has a mark
    // of its moment to hold it.
    if (is_flow) put_record(place, content, Kind::instant, start, *args);
    if (put_record(place, content, content.kind, start, *args)) session->count_sanitised(content.sanitised);
    session->release_arguments(*args);
    if (content.kind == Kind::metadata) session->wake(true);
}

// The number of a name that the user gave; anything can be one.
std::uint32_t number_of(PyObject* category, PyObject* name) {
    ErrorAside aside;
    return intern_name(text_of(category), text_of(name));
}
std::uint32_t number_of(const char* category, PyObject* name) {
    ErrorAside aside;
    return intern_name(category, text_of(name));
}

// Whether an optional argument is a moment, or none is given; else an exception is set.
bool read_moment(PyObject* given, Moment& moment) {
    if (!given) return true;
    moment.given = true;
    return PyArg_ParseTuple(given, "KKKK", &moment.time_ns, &moment.span, &moment.level, &moment.generation);
}

void put_at(Content& content, const Moment& moment) {
    content.start_ns = content.end_ns = moment.time_ns;
    content.moment = moment;
}

PyObject* instant(PyObject*, PyObject* const* given, Py_ssize_t count) {
    if (count < 2 || count > 5 || (count > 3 && !PyUnicode_Check(given[3])) ||
        (count > 4 && !PyTuple_Check(given[4])))
        return PyErr_Format(PyExc_TypeError, "instant(cat, name, args=None, track='', moment=())");
    Moment moment;
    if (!read_moment(count > 4 ? given[4] : nullptr, moment)) return nullptr;
    if (!run_is_on()) Py_RETURN_NONE;
    Content content{Kind::instant, number_of(given[0], given[1]), {}};
    put_at(content, moment);
    if (count > 3 && PyUnicode_GetLength(given[3])) content.track = number_of("track", given[3]);
    if (count > 2 && PyDict_Check(given[2])) content.sanitised = append_members(content.members, given[2]);
    record(content);
    Py_RETURN_NONE;
}

bool fits_63_bits(PyObject* integer) {
    int overflow = 0;
    PyLong_AsLongLongAndOverflow(integer, &overflow);
    return overflow == 0;
}

// Whether all values are numbers as they are written.
bool are_plain_numbers(PyObject* values) {
    PyObject* value = nullptr;
    for (Py_ssize_t at = 0; PyDict_Next(values, &at, nullptr, &value);) {
        const bool plain = PyFloat_CheckExact(value) ? Py_IS_FINITE(PyFloat_AS_DOUBLE(value))
                                                     : PyLong_CheckExact(value) && fits_63_bits(value);
        if (!plain) return false;
    }
    return true;
}

PyObject* counter(PyObject*, PyObject* const* given, Py_ssize_t count) {
    if (count < 2 || count > 3 || !PyDict_Check(given[1]) || (count > 2 && !PyTuple_Check(given[2])))
        return PyErr_Format(PyExc_TypeError, "counter(name, values, moment=())");
    PyObject* const values = given[1];
    Moment moment;
    if (!read_moment(count > 2 ? given[2] : nullptr, moment)) return nullptr;
    if (!run_is_on()) Py_RETURN_NONE;
    Content content{Kind::counter, number_of("counter", given[0]), {}};
    put_at(content, moment);
    if (are_plain_numbers(values)) {
        content.sanitised = append_members(content.members, values);
        if (!content.members.empty() || content.sanitised) record(content);
        Py_RETURN_NONE;
    }
    // Perfetto counts an error for every value that is not a number: such a one is left out.
    Ref numbers(PyDict_New());
    Ref items(PyDict_Items(values));
    if (!numbers || !items) return nullptr;
    {
        const Converting converting;
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.get()); ++i) {
            PyObject* key = PyTuple_GET_ITEM(PyList_GET_ITEM(items.get(), i), 0);
            PyObject* value = PyTuple_GET_ITEM(PyList_GET_ITEM(items.get(), i), 1);
            const bool plain = PyFloat_Check(value) || PyLong_Check(value);
            const bool asked = !PyUnicode_Check(value) && (plain || !Converting::again());
            Ref number(asked ? PyNumber_Float(value) : nullptr);
            if (!number) forget_error();
            if (!number || !Py_IS_FINITE(PyFloat_AS_DOUBLE(number.get()))) {
                ++content.sanitised;
                continue;
            }
            const bool whole = PyLong_CheckExact(value) && fits_63_bits(value);
            PyObject* kept = whole ? value : number.get();
            if (PyDict_SetItem(numbers.get(), key, kept) < 0) return nullptr;
        }
    }
    content.sanitised += append_members(content.members, numbers.get());
    if (!content.members.empty() || content.sanitised) record(content);
    Py_RETURN_NONE;
}

PyObject* flow(PyObject*, PyObject* arguments) {
    PyObject *name = nullptr, *given = nullptr;
    int inward = 0;
    unsigned long long id = 0;
    Moment moment;
    if (!PyArg_ParseTuple(arguments, "OpK|O!", &name, &inward, &id, &PyTuple_Type, &given) ||
        !read_moment(given, moment))
        return nullptr;
    if (!run_is_on()) Py_RETURN_NONE;
    Content content{inward ? Kind::flow_in : Kind::flow_out, number_of("flow", name), {}, 0, id};
    put_at(content, moment);
    record(content);
    Py_RETURN_NONE;
}

// Readers of these lines expect text, whatever was given.
std::uint64_t append_text(std::string& out, PyObject* value) {
    if (PyUnicode_Check(value)) return append_value(out, value);
    ErrorAside aside;
    append_json_string(out, text_of(value));
    return 0;
}

PyObject* metadata(PyObject*, PyObject* arguments) {
    PyObject *key = nullptr, *value = nullptr;
    int in_every_part = 0;
    if (!PyArg_ParseTuple(arguments, "OO|p", &key, &value, &in_every_part)) return nullptr;
    if (!run_is_on()) Py_RETURN_NONE;
    Content content{Kind::metadata, intern_name("dftracer", "CM"), ",\"name\":"};
    content.value = static_cast<std::uint64_t>(in_every_part);
    content.sanitised = append_text(content.members, key);
    content.members += ",\"value\":";
    content.sanitised += append_text(content.members, value);
    record(content);
    Py_RETURN_NONE;
}

PyObject* log_event(PyObject*, PyObject* arguments) {
    PyObject *category = nullptr, *name = nullptr, *args = nullptr, *track = nullptr;
    unsigned long long start_us = 0, duration_us = 0, sanitised = 0;
    if (!PyArg_ParseTuple(arguments, "OOKKO!|KU", &category, &name, &start_us, &duration_us, &PyDict_Type,
                          &args, &sanitised, &track))
        return nullptr;
    if (!run_is_on()) Py_RETURN_NONE;
    Content content{Kind::span, number_of(category, name), {}};
    if (track && PyUnicode_GetLength(track)) content.track = number_of("track", track);
    content.sanitised = sanitised + append_members(content.members, args);
    content.start_ns = start_us * 1000;
    content.end_ns = (start_us + duration_us) * 1000;
    record(content);
    Py_RETURN_NONE;
}

// Told when it is over, by who kept the moment of its span: that encloses it in the tree, not in time.
PyObject* log_within(PyObject*, PyObject* arguments) {
    PyObject *category = nullptr, *name = nullptr, *args = nullptr, *track = nullptr, *given = nullptr;
    unsigned long long start_ns = 0, end_ns = 0;
    if (!PyArg_ParseTuple(arguments, "OOKKO!UO!", &category, &name, &start_ns, &end_ns, &PyDict_Type, &args,
                          &track, &PyTuple_Type, &given))
        return nullptr;
    Content content{Kind::span, 0, {}};
    if (!read_moment(given, content.moment)) return nullptr;
    if (!run_is_on()) Py_RETURN_NONE;
    content.name = number_of(category, name);
    content.track = number_of("track", track);
    content.sanitised = append_members(content.members, args);
    content.start_ns = start_ns;
    content.end_ns = std::max(end_ns, start_ns);
    record(content);
    Py_RETURN_NONE;
}

// Times of the recorder's own clock need no conversion: what happened between two of this thread's events
// lies between them in the trace, to the nanosecond.
PyObject* log_between(PyObject*, PyObject* arguments) {
    PyObject *category = nullptr, *name = nullptr, *args = nullptr, *track = nullptr;
    unsigned long long start = 0, end = 0;
    if (!PyArg_ParseTuple(arguments, "OOKKO!U", &category, &name, &start, &end, &PyDict_Type, &args, &track))
        return nullptr;
    if (!run_is_on() || !start) Py_RETURN_NONE;
    Content content{Kind::span, number_of(category, name), {}};
    content.track = number_of("track", track);
    content.sanitised = append_members(content.members, args);
    content.start_tick = start;
    content.end_tick = std::max(end, start + tick_source.min_step);
    content.moment.given = true;  // what is open by now did not enclose it
    record(content);
    Py_RETURN_NONE;
}

void count_dropped() noexcept {
    if (Session* session = current_session()) session->count_dropped();
}

// `function`, for which too little memory is no reason to fail the training: its event is dropped.
template <auto function, class... Given>
PyObject* dropped_without_memory(PyObject* module, Given... given) {
    try {
        return function(module, given...);
    } catch (const std::bad_alloc&) {
        count_dropped();
        Py_RETURN_NONE;
    }
}

PyObject* moment(PyObject*, PyObject*) {
    task_context();
    const detail::ThisThread& mine = detail::this_thread;
    const std::uint64_t generation = *detail::live_generation;
    // A thread that has recorded nothing in this run has no span open, and need not be known to it.
    const bool known = generation && mine.generation == generation && mine.thread;
    const EnclosingSpan around = known ? enclosing_span(mine.thread) : EnclosingSpan{};
    return Py_BuildValue(
        "KKKK", static_cast<unsigned long long>(epoch_ns()), static_cast<unsigned long long>(around.id),
        static_cast<unsigned long long>(around.level), static_cast<unsigned long long>(generation));
}

PyObject* ticks(PyObject*, PyObject*) {
    Thread* thread = recording_thread();
    return PyLong_FromUnsignedLongLong(thread ? thread->tick() : 0);
}

PyObject* epoch_offset(PyObject*, PyObject*) { return PyLong_FromUnsignedLongLong(epoch_offset_now()); }

PyObject* time_us(PyObject*, PyObject*) { return PyLong_FromUnsignedLongLong(epoch_ns() / 1000); }

PyObject* count_unmatched_stop(PyObject*, PyObject*) {
    if (Thread* thread = recording_thread())
        thread->session->header().unmatched_stops.fetch_add(1, std::memory_order_relaxed);
    Py_RETURN_NONE;
}

}  // namespace

std::uint32_t number_of_track(PyObject* track) {
    // The tracks of a training are few: each has a text that lasts, and one after the other it comes again.
    static PyObject* last_track = nullptr;
    static std::uint32_t number_of_last = 0;
    if (track != last_track) {
        const std::uint32_t number = number_of("track", track);
        Py_XSETREF(last_track, Py_NewRef(track));
        number_of_last = number;
    }
    return number_of_last;
}

PyMethodDef event_functions[] = {
    {"instant", fast(dropped_without_memory<instant, PyObject* const*, Py_ssize_t>), METH_FASTCALL,
     "instant(cat, name, args=None, track='', moment=()): a moment, now and in the open span, or another "
     "one on a track of that name."},
    {"counter", fast(dropped_without_memory<counter, PyObject* const*, Py_ssize_t>), METH_FASTCALL,
     "counter(name, values, moment=()): numbers of this moment, or of another."},
    {"flow", dropped_without_memory<flow, PyObject*>, METH_VARARGS,
     "flow(name, inward, id, moment=()): one end of an arrow between spans."},
    {"metadata", dropped_without_memory<metadata, PyObject*>, METH_VARARGS,
     "metadata(key, value, in_every_part=False): a CM event, written at once."},
    {"log_event", dropped_without_memory<log_event, PyObject*>, METH_VARARGS,
     "log_event(cat, name, start_us, duration_us, args, sanitised=0, track=''): a span with given times."},
    {"log_within", dropped_without_memory<log_within, PyObject*>, METH_VARARGS,
     "log_within(cat, name, start_ns, end_ns, args, track, moment): a span with given times, of another."},
    {"log_between", dropped_without_memory<log_between, PyObject*>, METH_VARARGS,
     "log_between(cat, name, start, end, args, track): a span between two moments that `ticks` told."},
    {"ticks", ticks, METH_NOARGS, "The recorder's own clock, behind all events of this thread; 0 when off."},
    {"begin", begin_apart, METH_VARARGS,
     "begin(cat, name, args, track) -> ApartSpan: a span on a track of that name, which any thread may end."},
    {"moment", moment, METH_NOARGS,
     "moment() -> (time_ns, id of the open span, its level, run): this moment, to be told of later."},
    {"epoch_offset_ns", epoch_offset, METH_NOARGS, "When the clock that counts through sleep was at zero."},
    {"time_us", time_us, METH_NOARGS, "Microseconds since the epoch, by the trace's clock."},
    {"count_unmatched_stop", count_unmatched_stop, METH_NOARGS, "Count a stop() that had no start()."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace dftrace::py
