#include "program_tables.h"

#include <algorithm>
#include <cstring>

#include "failure.h"

namespace keel {

namespace {

constexpr int64_t FORMAT = 1;
constexpr uint32_t MOST_SLOTS = 1 << 24;
constexpr size_t MOST_DIMS = 64;

std::vector<uint32_t> indices(const Json &list, size_t count) {
    std::vector<uint32_t> made;
    for (const Json &each : list.list()) made.push_back(each.index(count));
    return made;
}

// True for the device, false for the host.
bool is_device(const Json &name) {
    if (name.text() != "cpu" && name.text() != "cuda") bad_package("The package has tensors on " + name.text() + ".");
    return name.text() == "cuda";
}

void read_types(const Json &table, Program &program) {
    program.types_of_symbol.resize(program.expressions.symbols());
    for (const Json &row : table.list()) {
        Type type;
        type.dtype = read_dtype(row.at(0));
        type.on_device = row.list().size() > 3 && is_device(row.at(3));  // the first programs were all on the host
        type.shape = indices(row.at(1), program.expressions.size());
        type.strides = indices(row.at(2), program.expressions.size());
        if (type.shape.size() != type.strides.size() || type.shape.size() > MOST_DIMS)
            bad_package("A type in the package has not as many strides as sizes.");
        uint32_t number = static_cast<uint32_t>(program.types.size());
        for (const auto *dims : {&type.shape, &type.strides})
            for (uint32_t dim : *dims)
                for (uint32_t symbol : program.expressions.symbols_of(dim)) {
                    type.is_static = false;
                    auto &users = program.types_of_symbol[symbol];
                    if (users.empty() || users.back() != number) users.push_back(number);
                }
        program.types.push_back(std::move(type));
    }
}

std::vector<uint32_t> open_dims(const Json &list, size_t count) {
    std::vector<uint32_t> made;
    for (const Json &each : list.list()) made.push_back(each.is_null() ? NOTHING : each.index(count));
    if (made.size() > MOST_DIMS) bad_package("An input in the package has too many dimensions.");
    return made;
}

const DType *number_type(const std::string &kind) {
    const DType *dtype = dtype_named(kind == "int"     ? "int64"
                                     : kind == "float" ? "float64"
                                     : kind == "bool"  ? "bool"
                                                       : "");
    if (dtype == nullptr) bad_package("The package has an unknown kind of number: " + kind + ".");
    return dtype;
}

void read_inputs(const Json &table, Program &program) {
    const Expressions &expressions = program.expressions;
    for (const Json &row : table.list()) {
        Input input;
        input.name = row["name"].text();
        if (const Json *kind = row.find("number")) {
            input.is_number = true;
            input.dtype = number_type(kind->text());
            input.symbol = row["symbol"].index(expressions.symbols());
        } else {
            input.dtype = read_dtype(row["dtype"]);
            if (const Json *device = row.find("device")) input.on_device = is_device(*device);
            input.slot = row["slot"].index(program.slots);
            input.shape = open_dims(row["shape"], expressions.size());
            input.strides = open_dims(row["strides"], expressions.size());
            if (input.shape.size() != input.strides.size())
                bad_package("An input in the package has not as many strides as sizes.");
            Values values(expressions);
            for (uint32_t dim : input.shape)
                input.sizes.push_back(dim != NOTHING && expressions.is_static(dim) ? values.integer(dim) : -1);
        }
        program.inputs.push_back(std::move(input));
    }
}

void read_outputs(const Json &table, Program &program) {
    for (const Json &row : table.list()) {
        Output output;
        output.name = row.at(0).text();
        const std::string &kind = row.at(1).text();
        if (kind == "tensor") {
            output.kind = Output::Kind::Tensor;
            output.at = row.at(2).index(program.slots);
        } else if (kind == "number") {
            output.kind = Output::Kind::Number;
            output.at = row.at(2).index(program.expressions.size());
            output.dtype = number_type(row.at(3).text());
        } else if (kind != "none") {
            bad_package("The package has an unknown kind of result: " + kind + ".");
        }
        program.outputs.push_back(std::move(output));
    }
}

DeviceLaunch read_launch(const Json &data, const Program &program, uint32_t buffers) {
    size_t numbers = program.expressions.size();
    DeviceLaunch launch;
    launch.code = data["code"].index(program.code.size());
    if (program.code[launch.code].kind != "cubin") bad_package("The package launches a function of other code.");
    launch.name = data["name"].text();
    launch.step = data["step"].index(1 << 16);
    launch.rank = data["rank"].index(1 << 16);
    launch.alignment = static_cast<uint32_t>(data["alignment"].integer(1, 256));
    launch.shared = static_cast<uint32_t>(data["shared"].integer(0, 1 << 20));
    launch.conditions = indices(data["conditions"], numbers);
    for (const Json &each : data["grid"].list(3)) launch.grid.push_back(each.index(numbers));
    for (const Json &each : data["block"].list(3)) launch.block.push_back(static_cast<uint32_t>(each.integer(1, 1024)));
    for (const Json &each : data["cluster"].list(3))
        if (each.integer() != 1)
            throw Failure(KEEL_NOT_HERE, "The package launches clusters, which this runtime does not.");
    for (const Json &each : data["parameters"].list()) {
        const std::string &kind = each.at(0).text();
        if (kind == "buffer")
            launch.parameters.push_back({DeviceLaunch::Kind::Buffer, each.list(2)[1].index(buffers)});
        else if (kind == "int32" || kind == "int64")
            launch.parameters.push_back({kind == "int32" ? DeviceLaunch::Kind::Int32 : DeviceLaunch::Kind::Int64,
                                         each.list(2)[1].index(numbers)});
        else if (kind == "null")
            launch.parameters.push_back({DeviceLaunch::Kind::Null});
        else
            bad_package("The package launches a function with an unknown kind of parameter: " + kind + ".");
    }
    if (launch.parameters.size() > MOST_PARAMETERS)
        bad_package("The package launches a function with too many parameters.");
    return launch;
}

void read_code(const Json &data, Program &program) {
    for (const Json &row : data["code"].list()) {
        program.code.push_back({row.list(2)[0].text(), row.at(1).text()});
        if (program.code.back().kind != "elf" && program.code.back().kind != "cubin")
            throw Failure(KEEL_NOT_HERE, "The package has machine code of the kind " + program.code.back().kind +
                                             ", which this runtime does not run.");
    }
    for (const Json &row : data["functions"].list()) {
        KernelUse use;
        use.on_device = row.is_record();
        const Json &buffers = use.on_device ? row["buffers"] : row.list(4)[2];
        const Json &symbols = use.on_device ? row["symbols"] : row.at(3);
        use.buffers = static_cast<uint32_t>(buffers.integer(0, MOST_PARAMETERS));
        use.symbols = static_cast<uint32_t>(symbols.integer(0, MOST_PARAMETERS - use.buffers));
        if (use.on_device) {
            for (const Json &each : row["launches"].list())
                use.launches.push_back(read_launch(each, program, use.buffers));
            auto earlier = [](const DeviceLaunch &a, const DeviceLaunch &b) {
                return a.step != b.step ? a.step < b.step : a.rank < b.rank;
            };
            std::stable_sort(use.launches.begin(), use.launches.end(), earlier);
        } else {
            use.code = row.at(0).index(program.code.size());
            use.name = row.at(1).text();
            if (program.code[use.code].kind != "elf") bad_package("The package has a C function in other code.");
        }
        program.functions.push_back(std::move(use));
    }
    for (const Json &row : data["parts"].list()) program.parts.push_back({row.list(2)[0].text(), row.at(1).text()});
}

bool ends_with(const std::string &text, const char *end) {
    size_t length = strlen(end);
    return text.size() >= length && text.compare(text.size() - length, length, end) == 0;
}

Argument read_argument(const std::string &type, const Json &value, const Expressions &expressions, uint32_t slots) {
    Argument made;
    made.type = type;
    size_t numbers = expressions.size();
    if (ends_with(type, "?")) {
        if (!value.is_null()) made = read_argument(type.substr(0, type.size() - 1), value, expressions, slots);
        made.is_optional = true;
    } else if (ends_with(type, "[]")) {
        made.kind = Argument::Kind::List;
        for (const Json &each : value.list())
            made.items.push_back(read_argument(type.substr(0, type.size() - 2), each, expressions, slots));
    } else if (type == "Tensor" && value.is_record()) {
        made.kind = Argument::Kind::ScalarTensor;
        for (const char *kind : {"int", "float", "bool"})
            if (const Json *number = value.find(kind)) {
                made.text = kind;
                made.at = number->index(numbers);
            }
        if (made.text.empty()) bad_package("The package has a malformed argument of a library call.");
    } else if (type == "Tensor") {
        made.kind = Argument::Kind::Tensor;
        made.at = value.index(slots);
    } else if (type == "int" || type == "float" || type == "bool") {
        made.kind = type == "int"     ? Argument::Kind::Integer
                    : type == "float" ? Argument::Kind::Real
                                      : Argument::Kind::Truth;
        made.at = value.index(numbers);
    } else if (type == "ScalarType" || type == "Layout" || type == "MemoryFormat" || type == "str") {
        made.kind = type == "str" ? Argument::Kind::Text : Argument::Kind::Word;
        made.text = value.text();
    } else if (type == "Device" && value.is_text() && (value.text() == "cpu" || value.text() == "cuda")) {
        made.kind = Argument::Kind::Device;
        made.text = value.text();
    } else {
        bad_package("The package has an unknown type of an argument of a library call: " + type + ".");
    }
    return made;
}

}  // namespace

const DType *read_dtype(const Json &name) {
    const DType *dtype = dtype_named(name.text());
    if (dtype == nullptr) bad_package("The package has tensors of an unknown dtype: " + name.text() + ".");
    return dtype;
}

void read_tables(const Json &data, Program &program) {
    if (data["format"].integer() != FORMAT)
        bad_package(words("The program of the package is of version %lld, and this runtime runs version %lld.",
                          (long long)data["format"].integer(), (long long)FORMAT));
    program.expressions = Expressions(data["expressions"], data["symbols"]);
    program.slots = static_cast<uint32_t>(data["slots"].integer(0, MOST_SLOTS));
    read_types(data["types"], program);
    read_inputs(data["inputs"], program);
    read_outputs(data["outputs"], program);
    for (const Json &row : data["weights"].list())
        program.weights.push_back({row.list(4)[0].text(), row.at(1).index(program.types.size()),
                                   row.at(2).index(program.slots), row.at(3).flag()});
    for (const WeightUse &use : program.weights)
        if (!program.types[use.type].is_static) bad_package("A weight in the package has a size that is not known.");
    read_code(data, program);
}

Call read_call(const Json &data, const Expressions &expressions, uint32_t slots, uint32_t results) {
    Call call;
    call.operator_name = data["operator"].text();
    if (const Json *function = data.find("function")) {
        call.function = function->text();
    } else {
        call.name = data["name"].text();
        call.overload = data["overload"].text();
        for (const Json &kind : data["returns"].list()) call.returns_tensor.push_back(kind.text() == "Tensor");
        call.returns_list = data["returns"].list().size() == 1 && data["returns"].at(0).text() == "Tensor[]";
    }
    for (const Json &each : data["args"].list())
        call.arguments.push_back(read_argument(each.list(2)[0].text(), each.at(1), expressions, slots));
    for (const Json &each : data["results"].list())
        call.results.push_back(each.integer() == -1 ? NOTHING : each.index(results));
    if (call.function.empty() && !call.returns_list && !call.results.empty() &&
        call.results.size() != call.returns_tensor.size())
        bad_package("The package has a wrong number of results of " + call.operator_name + ".");
    return call;
}

Packed read_packed(const Json &data, const Program &program) {
    Packed packed;
    const std::string &form = data["form"].text();
    packed.is_convolution = form == "convolution";
    if (!packed.is_convolution && form != "linear")
        bad_package("The package has an unknown packed form: " + form + ".");
    packed.channels = static_cast<uint32_t>(data["channels"].integer(0, 1));
    packed.parameters = static_cast<uint32_t>(data["parameters"].integer(1, 1000));
    packed.adds = data["adds"].flag();
    uint32_t values = packed.parameters;
    for (const Json &each : data["recipe"].list()) {
        packed.recipe.push_back(read_call(each, program.expressions, values, values + 1));
        if (packed.recipe.back().results != std::vector<uint32_t>{values})
            bad_package("The package has a malformed packed call.");
        values++;
    }
    for (const Json &each : data["outputs"].list()) {
        Packed::Computed computed;
        if (each.is_int()) {
            computed = {Packed::Output::Value, each.index(values)};
        } else if (each.is_record()) {
            const Json *number = each.find("int") ? each.find("int") : each.find("float");
            if (number == nullptr) bad_package("The package has a malformed packed call.");
            computed = {Packed::Output::Number, number->index(program.expressions.size())};
            if (!program.expressions.is_static(computed.at)) bad_package("The package has a malformed packed call.");
        }
        packed.outputs.push_back(computed);
    }
    static const std::string words = "add sub mul div", signs = "+-*/";
    for (const Json &each : data["folded"].list()) {
        size_t place = words.find(each.text());
        if (each.text().size() != 3 || place == std::string::npos || place % 4 != 0)
            bad_package("The package has a malformed packed call.");
        packed.folded.push_back(signs[place / 4]);
    }
    if (packed.outputs.size() != packed.folded.size() + 2 || packed.outputs[0].kind != Packed::Output::Value ||
        packed.outputs[1].kind == Packed::Output::Number)
        bad_package("The package has a malformed packed call.");
    if (const Json &then = data["then"]; !then.is_null()) {
        packed.then = then.list(2)[0].text();
        packed.then_call = read_call(then.at(1), program.expressions, 1, 2);
        if (packed.then_call.results != std::vector<uint32_t>{1})
            bad_package("The package has a malformed packed call.");
    }
    if (packed.is_convolution) {
        for (auto [name, sizes] :
             {std::pair{"stride", &packed.stride}, {"padding", &packed.padding}, {"dilation", &packed.dilation}})
            for (const Json &each : data[name].list(2)) sizes->push_back(each.integer(0, INT32_MAX));
        packed.groups = data["groups"].integer(1, INT32_MAX);
    }
    return packed;
}

}  // namespace keel
