// Reads the tables of a program, which its steps refer to.
#pragma once

#include "program.h"

namespace keel {

// The tables but arenas, packed calls and steps.
void read_tables(const Json &data, Program &program);

const DType *read_dtype(const Json &name);

// A library call. The slots of its arguments are less than `slots`, and those of its results less than `results`.
Call read_call(const Json &data, const Expressions &expressions, uint32_t slots, uint32_t results);

Packed read_packed(const Json &data, const Program &program);

}  // namespace keel
