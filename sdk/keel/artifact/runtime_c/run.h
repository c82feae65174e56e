// One call of a model.
#pragma once

#include "model.h"

namespace keel {

class Run {
  public:
    Run(Model &model, Frame &frame, void *stream)
        : model_(model), program_(model.program_), frame_(frame), stream_(stream) {}

    // Checks the inputs, and runs all steps. Throws KEEL_BAD_INPUT, KEEL_BAD_INDEX or KEEL_FAILED.
    void all(const DLManagedTensor *const *inputs);

    // The results, which the caller owns.
    std::vector<DLManagedTensor *> results();

  private:
    void take(const Input &input, const DLTensor &value, size_t number);
    void take_number(const Input &input, const DLTensor &value);
    void step(const Step &step);
    void bind(const Step &step);
    void enter(const Step &step);
    void range(const Step &step);
    void view(const Step &step);
    void launch(const Step &step);
    void library(const Step &step);
    void packed(const Step &step);
    void lay_out(const Step &step);
    void check(const Step &step);
    void part(const Step &step);
    void read(const Step &step);
    void record(const Step &step);
    void settle(const Step &step);
    void copied(const Tensor &from, char *to, const int64_t *strides);
    void clone(const Step &step);
    void copy_to(const Step &step);
    const Tensor &existing(uint32_t slot) const;
    Tensor allocated(uint32_t type);
    DLManagedTensor *result(const Output &output);
    [[noreturn]] void bad_index(const CheckSite &site, int64_t recorded);

    Model &model_;
    const Program &program_;
    Frame &frame_;
    void *stream_;
};

}  // namespace keel
