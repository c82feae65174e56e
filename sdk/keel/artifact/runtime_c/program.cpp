#include "program.h"

#include <algorithm>
#include <map>

#include "failure.h"
#include "program_tables.h"

namespace keel {

namespace {

using Kind = Step::Kind;

// Reads the steps in order, and checks that each uses only what earlier ones define. A program is a straight line, so
// what holds at a step holds in every call.
class ProgramReader {
  public:
    explicit ProgramReader(const Json &data) : data_(data) {}

    Program read() {
        read_tables(data_, program_);
        defined_.resize(program_.slots);
        root_.resize(program_.slots);
        bound_.resize(program_.expressions.symbols());
        for (const WeightUse &weight : program_.weights) {
            define(weight.slot);
            weights_.push_back(weight.slot);
        }
        for (const Input &input : program_.inputs) {
            if (input.is_number)
                bind(input.symbol);
            else
                define(input.slot);
        }
        for (const Json &arena : data_["arenas"].list()) program_.arenas.push_back(read_arena(arena));
        if (const Json *records = data_.find("records"))
            for (const Json &row : records->list()) {
                program_.records.emplace_back();
                read_checks(row, program_.records.back().sites, program_.records.back().places);
            }
        for (const Json &packed : data_["packed"].list()) program_.packed.push_back(read_packed(packed, program_));
        for (const Json &row : data_["steps"].list()) {
            Step step;
            read(row, step);
            program_.steps.push_back(std::move(step));
        }
        for (const Output &output : program_.outputs) {
            if (output.kind == Output::Kind::Tensor) use(output.at);
            if (output.kind == Output::Kind::Number) known(output.at);
        }
        return std::move(program_);
    }

  private:
    [[noreturn]] void bad(const char *what) const {
        bad_package(words("Step %zu of the program in the package %s.", program_.steps.size(), what));
    }

    // -- what is defined --

    void define(uint32_t slot, uint32_t root = NOTHING) {
        if (defined_[slot]) bad("defines a value twice");
        defined_[slot] = 1;
        root_[slot] = root == NOTHING ? slot : root_[root];
    }

    uint32_t use(uint32_t slot) {
        if (!defined_[slot]) bad("uses a value that is not defined");
        return slot;
    }

    void drop(uint32_t slot) {
        if (std::find(weights_.begin(), weights_.end(), slot) != weights_.end()) bad("frees a weight");
        defined_[use(slot)] = 0;
    }

    void bind(uint32_t symbol) {
        if (bound_[symbol]) bad("binds a symbol twice");
        bound_[symbol] = 1;
    }

    uint32_t known(uint32_t expression) const {
        for (uint32_t symbol : program_.expressions.symbols_of(expression))
            if (!bound_[symbol]) bad("uses a size that is not known");
        return expression;
    }

    uint32_t known_type(uint32_t type) const {
        for (uint32_t dim : program_.types[type].shape) known(dim);
        for (uint32_t dim : program_.types[type].strides) known(dim);
        return type;
    }

    // -- what steps name --

    uint32_t slot(const Json &value) const { return value.index(program_.slots); }
    uint32_t used(const Json &value) { return use(slot(value)); }
    uint32_t number(const Json &value) const { return known(value.index(program_.expressions.size())); }
    uint32_t symbol(const Json &value) const { return value.index(program_.expressions.symbols()); }
    uint32_t type(const Json &value) const { return known_type(value.index(program_.types.size())); }
    uint32_t any_type(const Json &value) const { return value.index(program_.types.size()); }

    Arena read_arena(const Json &data) const {
        Arena arena;
        constexpr size_t most = 1 << 30;  // steps of the part, in their order
        for (const Json &row : data["tensors"].list()) {
            row.list(4);
            uint32_t first = row.at(2).index(most), last = row.at(3).index(most);
            arena.tensors.push_back({slot(row.at(0)), any_type(row.at(1)), first, last});
        }
        for (const Json &row : data["views"].list()) {
            row.list(4);
            arena.views.push_back(
                {slot(row.at(0)), any_type(row.at(1)), slot(row.at(2)), row.at(3).index(program_.expressions.size())});
        }
        if (data.find("sites")) read_checks(data, arena.sites, arena.places);
        return arena;
    }

    void read_checks(const Json &data, std::vector<CheckSite> &sites, std::vector<ArenaView> &places) const {
        for (const Json &row : data["sites"].list()) sites.push_back(read_site(row));
        for (const Json &row : data["places"].list()) {
            ArenaView place{slot(row.list(3)[0]), any_type(row.at(1)), NOTHING, row.at(2).index(sites.size())};
            const Type &type = program_.types[place.type];
            Values values(program_.expressions);
            if (!type.is_static || type.shape.size() != 1 || type.dtype != dtype_named("int64") ||
                values.integer(type.shape[0]) > static_cast<int64_t>(sites.size() - place.offset) ||
                values.integer(type.strides[0]) != 1)
                bad_package("The package has malformed checks of indices.");
            places.push_back(place);
        }
    }

    CheckSite read_site(const Json &row) const {
        CheckSite site;
        site.operator_name = row.list(4)[0].text();
        site.line = row.at(1).text();
        if (row.at(2).is_text())
            site.bound_text = row.at(2).text();
        else
            site.bound = row.at(2).index(program_.expressions.size());
        site.wraps = row.at(3).flag();
        return site;
    }

    // -- steps: what a, b ... are is said with each --

    void read(const Json &row, Step &step) {
        using Read = void (ProgramReader::*)(const Json &, Step &);
        static const std::map<std::string, std::pair<Kind, Read>> readers = {
            {"bind", {Kind::Bind, &ProgramReader::read_bind}},
            {"compute", {Kind::Compute, &ProgramReader::read_compute}},
            {"enter", {Kind::Enter, &ProgramReader::read_enter}},
            {"range", {Kind::Range, &ProgramReader::read_range}},
            {"guard", {Kind::Guard, &ProgramReader::read_condition}},
            {"assert", {Kind::Assert, &ProgramReader::read_condition}},
            {"arena", {Kind::TakeArena, &ProgramReader::read_take}},
            {"give", {Kind::GiveArena, &ProgramReader::read_give}},
            {"allocate", {Kind::Allocate, &ProgramReader::read_allocate}},
            {"reuse", {Kind::Reuse, &ProgramReader::read_reuse}},
            {"view", {Kind::View, &ProgramReader::read_view}},
            {"launch", {Kind::Launch, &ProgramReader::read_launch}},
            {"call", {Kind::Library, &ProgramReader::read_library}},
            {"packed", {Kind::Packed, &ProgramReader::read_packed_call}},
            {"lay_out", {Kind::LayOut, &ProgramReader::read_lay_out}},
            {"check", {Kind::Check, &ProgramReader::read_check}},
            {"free", {Kind::Free, &ProgramReader::read_free}},
            {"copy", {Kind::Copy, &ProgramReader::read_copy}},
            {"clone", {Kind::Clone, &ProgramReader::read_clone}},
            {"part", {Kind::Part, &ProgramReader::read_part}},
            {"read", {Kind::Read, &ProgramReader::read_read}},
            {"record", {Kind::Record, &ProgramReader::read_record}},
            {"settle", {Kind::Settle, &ProgramReader::read_settle}},
        };
        auto found = readers.find(row.at(0).text());
        if (found == readers.end()) bad("is unknown to this runtime");
        step.kind = found->second.first;
        (this->*found->second.second)(row, step);
    }

    // a: the symbol; b, c: what its source is; d: the factor; e: the rest
    void read_bind(const Json &row, Step &step) {
        const Json &source = row.list(5)[2];
        const std::string &kind = source.at(0).text();
        if (kind == "number") {
            step.b = number(source.at(1));
        } else if (kind == "size" || kind == "stride") {
            step.source = kind == "size" ? Step::Source::Size : Step::Source::Stride;
            step.b = used(source.at(1));
            step.c = source.at(2).index(64);
        } else {
            bad("binds a symbol to nothing");
        }
        step.d = number(row.at(3));
        step.e = number(row.at(4));
        bind(step.a = symbol(row.at(1)));
    }

    // a: the symbol; b: the expression
    void read_compute(const Json &row, Step &step) {
        step.b = number(row.list(3)[2]);
        bind(step.a = symbol(row.at(1)));
    }

    // a: the record, whose tensors are defined from here on
    void read_record(const Json &row, Step &step) {
        step.a = row.list(2)[1].index(program_.records.size());
        for (const ArenaView &each : program_.records[step.a].places) define(each.slot);
    }

    // a: the record; b: 1 if it is after the kernels
    void read_settle(const Json &row, Step &step) {
        step.a = row.list(3)[1].index(program_.records.size());
        step.b = row.at(2).flag();
    }

    // a: the symbol; b: the slot of a tensor with one element
    void read_read(const Json &row, Step &step) {
        step.b = used(row.list(3)[2]);
        bind(step.a = symbol(row.at(1)));
    }

    // a: the input; b: the slot of the tensor as the graph takes it
    void read_enter(const Json &row, Step &step) {
        step.a = row.list(3)[1].index(program_.inputs.size());
        const Input &input = program_.inputs[step.a];
        if (input.is_number) bad("lays out a number");
        use(input.slot);
        for (const auto *dims : {&input.shape, &input.strides})
            for (uint32_t dim : *dims)
                if (dim != NOTHING) known(dim);
        define(step.b = slot(row.at(2)));
    }

    // a: the symbol
    void read_range(const Json &row, Step &step) {
        step.a = symbol(row.list(4)[1]);
        if (!bound_[step.a]) bad("uses a size that is not known");
        step.has_low = !row.at(2).is_null();
        step.has_high = !row.at(3).is_null();
        step.low = step.has_low ? row.at(2).integer() : 0;
        step.high = step.has_high ? row.at(3).integer() : 0;
    }

    // a: the condition
    void read_condition(const Json &row, Step &step) {
        step.a = number(row.list(3)[1]);
        step.text = row.at(2).text();
    }

    // a: the arena
    void read_take(const Json &row, Step &step) {
        step.a = row.list(2)[1].index(program_.arenas.size());
        if (taken_ != NOTHING) bad("takes a second arena");
        taken_ = step.a;
        const Arena &arena = program_.arenas[step.a];
        for (const ArenaTensor &each : arena.tensors) {
            known_type(each.type);
            define(each.slot);
        }
        for (const ArenaView &each : arena.views) {
            known_type(each.type);
            known(each.offset);
            define(each.slot, use(each.base));
        }
        for (const ArenaView &each : arena.places) define(each.slot);
    }

    // a: the arena. What lies in it is not defined any more.
    void read_give(const Json &row, Step &step) {
        step.a = row.list(2)[1].index(program_.arenas.size());
        if (taken_ != step.a) bad("gives back what was not taken");
        taken_ = NOTHING;
        const Arena &arena = program_.arenas[step.a];
        std::vector<uint8_t> gone(program_.slots);
        for (const ArenaTensor &each : arena.tensors) gone[each.slot] = 1;
        for (const ArenaView &each : arena.places) gone[each.slot] = 1;
        for (uint32_t k = 0; k < program_.slots; k++)
            if (defined_[k] && gone[root_[k]]) defined_[k] = 0;
    }

    // a: the slot; b: the type
    void read_allocate(const Json &row, Step &step) {
        step.b = type(row.list(3)[2]);
        define(step.a = slot(row.at(1)));
    }

    // a: the slot; b: the one that it takes the memory of
    void read_reuse(const Json &row, Step &step) {
        step.b = used(row.list(3)[2]);
        drop(step.b);
        define(step.a = slot(row.at(1)));
    }

    // a: the slot; b: the type; c: the base; d: the offset in bytes
    void read_view(const Json &row, Step &step) {
        step.b = type(row.list(5)[2]);
        step.c = used(row.at(3));
        step.d = number(row.at(4));
        define(step.a = slot(row.at(1)), step.c);
    }

    // a: the function
    void read_launch(const Json &row, Step &step) {
        step.a = row.list(4)[1].index(program_.functions.size());
        for (const Json &each : row.at(2).list()) step.slots.push_back(used(each));
        for (const Json &each : row.at(3).list()) {
            step.numbers.push_back(symbol(each));
            if (!bound_[step.numbers.back()]) bad("uses a size that is not known");
        }
        const KernelUse &use = program_.functions[step.a];
        for (const DeviceLaunch &launch : use.launches) {
            for (uint32_t condition : launch.conditions) known(condition);
            for (uint32_t size : launch.grid) known(size);
            for (const DeviceLaunch::Parameter &each : launch.parameters)
                if (each.kind == DeviceLaunch::Kind::Int32 || each.kind == DeviceLaunch::Kind::Int64) known(each.at);
        }
        if (use.buffers != step.slots.size() || use.symbols != step.numbers.size())
            bad("passes a wrong number of arguments to a kernel");
    }

    void check_arguments(const std::vector<Argument> &arguments) {
        for (const Argument &each : arguments) {
            if (each.kind == Argument::Kind::Tensor) use(each.at);
            if (each.kind == Argument::Kind::Integer || each.kind == Argument::Kind::Real ||
                each.kind == Argument::Kind::Truth || each.kind == Argument::Kind::ScalarTensor)
                known(each.at);
            check_arguments(each.items);
        }
    }

    // a: the slot that the results are views of, or NOTHING
    void read_library(const Json &row, Step &step) {
        step.call = read_call(row.list(3)[1], program_.expressions, program_.slots, program_.slots);
        check_arguments(step.call.arguments);
        step.a = row.at(2).integer() == -1 ? NOTHING : used(row.at(2));
        for (uint32_t result : step.call.results)
            if (result != NOTHING) define(result, step.a);
    }

    // a: the packed call; b: the image; c: what is added, or NOTHING; d: the result
    void read_packed_call(const Json &row, Step &step) {
        step.a = row.list(6)[1].index(program_.packed.size());
        const Packed &packed = program_.packed[step.a];
        step.b = used(row.at(2));
        step.c = row.at(3).integer() == -1 ? NOTHING : used(row.at(3));
        for (const Json &each : row.at(4).list()) step.slots.push_back(used(each));
        if (packed.parameters != step.slots.size() || packed.adds != (step.c != NOTHING))
            bad("passes a wrong number of arguments to a packed call");
        define(step.d = slot(row.at(5)));
    }

    // a: the slot; b: the type; slots: those that it must not lie in
    void read_lay_out(const Json &row, Step &step) {
        step.a = used(row.list(4)[1]);
        step.b = type(row.at(2));
        for (const Json &each : row.at(3).list()) step.slots.push_back(used(each));
    }

    // a: the arena; slots: pairs of the first site, and the one behind the last
    void read_check(const Json &row, Step &step) {
        step.a = row.list(3)[1].index(program_.arenas.size());
        if (taken_ != step.a) bad("looks at an arena that is not taken");
        size_t sites = program_.arenas[step.a].sites.size();
        for (const Json &each : row.at(2).list()) {
            step.slots.push_back(each.list(2)[0].index(sites + 1));
            step.slots.push_back(each.at(1).index(sites + 1));
        }
    }

    // a: the slot
    void read_free(const Json &row, Step &step) { drop(step.a = slot(row.list(2)[1])); }

    // a: the target; b: the source
    void read_copy(const Json &row, Step &step) {
        step.a = used(row.list(3)[1]);
        step.b = used(row.at(2));
    }

    // a: the slot; b: the type; c: the source
    void read_clone(const Json &row, Step &step) {
        step.b = type(row.list(4)[2]);
        step.c = used(row.at(3));
        define(step.a = slot(row.at(1)));
    }

    // a: the part; passed: its arguments; slots, numbers: its results, with their types
    void read_part(const Json &row, Step &step) {
        step.a = row.list(4)[1].index(program_.parts.size());
        for (const Json &each : row.at(2).list()) {
            PartArgument argument;
            argument.is_number = each.at(0).text() == "number";
            argument.at = argument.is_number ? number(each.at(1)) : used(each.at(1));
            if (argument.is_number) {
                const std::string &kind = each.at(2).text();
                argument.dtype = dtype_named(kind == "int" ? "int64" : kind == "float" ? "float64" : "bool");
            }
            step.passed.push_back(argument);
        }
        for (const Json &each : row.at(3).list()) {
            step.numbers.push_back(type(each.list(2)[1]));
            step.slots.push_back(slot(each.at(0)));
            define(step.slots.back());
        }
    }

    const Json &data_;
    Program program_;
    std::vector<uint8_t> defined_, bound_;
    std::vector<uint32_t> root_;  // of each slot: the one whose memory it lies in
    std::vector<uint32_t> weights_;
    uint32_t taken_ = NOTHING;
};

}  // namespace

Program read_program(const Json &data) { return ProgramReader(data).read(); }

bool Program::calls_libraries() const {
    return std::any_of(steps.begin(), steps.end(),
                       [](const Step &s) { return s.kind == Kind::Library || s.kind == Kind::Packed; });
}

bool Program::uses_device() const {
    return std::any_of(types.begin(), types.end(), [](const Type &t) { return t.on_device; });
}

bool Program::writes_weights() const {
    return std::any_of(weights.begin(), weights.end(), [](const WeightUse &w) { return w.written; });
}

}  // namespace keel
