"""ptxas drops what is added to the upper half of a register, where nothing reads the lower one."""

import os
import re
import subprocess
import sys
import tempfile

import triton

PTX = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry add(.param .u64 from, .param .u64 to) {
    .reg .b16 %h<3>;
    .reg .b32 %r<4>;
    .reg .b64 %p<3>;
    ld.param.b64 %p1, [from];
    ld.param.b64 %p2, [to];
    ld.global.b16 %h1, [%p1];
    mov.b32 %r1, {%h1, %h1};
    mov.b32 %r2, 0x00020000;
    add.s16x2 %r3, %r1, %r2;
    mov.b32 {_, %h2}, %r3;
    st.global.b16 [%p2], %h2;
    ret;
}
"""
tools = os.path.join(os.path.dirname(triton.__file__), "backends", "nvidia", "bin")
with tempfile.TemporaryDirectory() as folder:
    with open(os.path.join(folder, "add.ptx"), "w") as file:
        file.write(PTX)
    subprocess.run([f"{tools}/ptxas", "-arch=sm_90a", "add.ptx", "-o", "add.cubin"], cwd=folder, check=True)
    code = subprocess.run([f"{tools}/cuobjdump", "-sass", "add.cubin"], cwd=folder, capture_output=True, text=True)
added = re.findall(r"I?ADD\S* R\d+, R\d+, (0x\w+)", code.stdout)
print("to be added 0x2 to the upper half; ptxas adds", added)
sys.exit(0 if added and all(int(a, 16) & 0xFFFF == 2 or int(a, 16) == 0x20000 for a in added) else 1)
