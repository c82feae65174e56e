"""ptxas takes |x| > -2 to be true of NaN, which is not greater than anything."""

import os
import re
import subprocess
import sys
import tempfile

import triton

PTX = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry compare(.param .u64 from, .param .u64 to) {
    .reg .pred %p<2>;
    .reg .b32 %r<4>;
    .reg .b64 %d<3>;
    ld.param.b64 %d1, [from];
    ld.param.b64 %d2, [to];
    ld.global.b32 %r1, [%d1];
    abs.f32 %r2, %r1;
    setp.gt.f32 %p1, %r2, 0fC0000000;
    selp.b32 %r3, 7, 9, %p1;
    st.global.b32 [%d2], %r3;
    ret;
}
"""
tools = os.path.join(os.path.dirname(triton.__file__), "backends", "nvidia", "bin")
with tempfile.TemporaryDirectory() as folder:
    with open(os.path.join(folder, "compare.ptx"), "w") as file:
        file.write(PTX)
    subprocess.run([f"{tools}/ptxas", "-arch=sm_90a", "compare.ptx", "-o", "compare.cubin"], cwd=folder, check=True)
    code = subprocess.run([f"{tools}/cuobjdump", "-sass", "compare.cubin"], cwd=folder, capture_output=True, text=True)
compares = re.findall(r"FSETP\.\S+", code.stdout)
print("a comparison and a choice by it; ptxas compares by", compares or "nothing, and reads nothing")
sys.exit(0 if compares else 1)
