// The C interface: each function turns exceptions into a status and a text.

#include <cstring>
#include <new>

#include "failure.h"
#include "keel_runtime.h"
#include "model.h"

struct keel_model {
    keel::Model model;
};

namespace {

keel_status told(keel_error *error, keel_status status, const char *text) {
    if (error != nullptr) {
        error->status = status;
        strncpy(error->text, text, sizeof error->text - 1);
        error->text[sizeof error->text - 1] = 0;
    }
    return status;
}

template <typename Work>
keel_status guarded(keel_error *error, Work &&work) {
    try {
        work();
        return told(error, KEEL_OK, "");
    } catch (const keel::Failure &failure) {
        return told(error, failure.status, failure.what());
    } catch (const std::bad_alloc &) {
        return told(error, KEEL_FAILED, "There is not enough memory.");
    } catch (const std::exception &raised) {
        return told(error, KEEL_FAILED, raised.what());
    } catch (...) {
        return told(error, KEEL_FAILED, "An unknown error occurred.");
    }
}

keel::Options copied(const keel_options *passed) {
    keel_options defaults;
    keel_options_init(&defaults, sizeof defaults);
    if (passed != nullptr) memcpy(&defaults, passed, passed->size < sizeof defaults ? passed->size : sizeof defaults);
    keel::Options options;
    if (defaults.libtorch) options.libtorch = defaults.libtorch;
    if (defaults.variant) options.variant = defaults.variant;
    options.asks_cpu = defaults.cpu_features == nullptr;
    for (size_t k = 0; defaults.cpu_features && k < defaults.cpu_feature_count; k++)
        options.cpu_features.push_back(defaults.cpu_features[k]);
    options.check_weights = defaults.check_weights != 0;
    options.threads = defaults.threads;
    for (size_t k = 0; k < defaults.part_library_count; k++)
        options.part_libraries.push_back(defaults.part_libraries[k]);
    for (size_t k = 0; k < defaults.part_file_count; k++) options.part_files.push_back(defaults.part_files[k]);
    return options;
}

}  // namespace

extern "C" {

void keel_options_init(keel_options *options, size_t size) {
    keel_options defaults;
    memset(&defaults, 0, sizeof defaults);
    defaults.size = size;
    defaults.check_weights = 1;
    memcpy(options, &defaults, size < sizeof defaults ? size : sizeof defaults);
}

keel_status keel_load(const char *path, const keel_options *options, keel_model **model, keel_error *error) {
    *model = nullptr;
    return guarded(error, [&] { *model = new keel_model{{path, copied(options)}}; });
}

void keel_free(keel_model *model) { delete model; }

const char *keel_variant(const keel_model *model) { return model->model.variant().c_str(); }

size_t keel_input_count(const keel_model *model) { return model->model.program().inputs.size(); }

size_t keel_output_count(const keel_model *model) { return model->model.program().outputs.size(); }

keel_status keel_input_info(const keel_model *model, size_t index, keel_value_info *info) {
    if (index >= keel_input_count(model)) return KEEL_BAD_INPUT;
    const keel::Input &input = model->model.program().inputs[index];
    *info = {input.name.c_str(), input.dtype->code, input.is_number, 0, static_cast<int32_t>(input.sizes.size()),
             input.sizes.data()};
    return KEEL_OK;
}

keel_status keel_output_info(const keel_model *model, size_t index, keel_value_info *info) {
    if (index >= keel_output_count(model)) return KEEL_BAD_INPUT;
    const keel::Output &output = model->model.program().outputs[index];
    *info = {output.name.c_str(),
             {},
             output.kind == keel::Output::Kind::Number,
             output.kind == keel::Output::Kind::None,
             -1,
             nullptr};
    if (output.dtype != nullptr) info->dtype = output.dtype->code;
    return KEEL_OK;
}

keel_status keel_run(keel_model *model, const DLManagedTensor *const *inputs, size_t input_count,
                     DLManagedTensor **outputs, size_t output_count, keel_error *error) {
    return keel_run_on(model, nullptr, inputs, input_count, outputs, output_count, error);
}

keel_status keel_run_on(keel_model *model, void *stream, const DLManagedTensor *const *inputs, size_t input_count,
                        DLManagedTensor **outputs, size_t output_count, keel_error *error) {
    return guarded(error, [&] { model->model.run(stream, inputs, input_count, outputs, output_count); });
}

keel_status keel_set_threads(keel_model *model, int threads, keel_error *error) {
    return guarded(error, [&] { model->model.set_threads(threads); });
}

size_t keel_weight_count(const keel_model *model) { return model->model.weight_names().size(); }

const char *keel_weight_name(const keel_model *model, size_t index) {
    return index < keel_weight_count(model) ? model->model.weight_names()[index].c_str() : nullptr;
}

keel_status keel_replace_weight(keel_model *model, const char *name, const DLManagedTensor *value, keel_error *error) {
    return guarded(error, [&] { model->model.replace(name, value->dl_tensor); });
}

size_t keel_held_bytes(const keel_model *model) { return const_cast<keel_model *>(model)->model.held_bytes(); }

}  // extern "C"
