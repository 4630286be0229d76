"""Checks that OpenH264 was compiled with SIMD (docs/results/unity-video.md says what that saves).

    simd.py x86_64|arm64 FILE...   one of the files, libholocast or OpenH264's archives, has the functions

Microsoft's linker leaves no function names in a library: check OpenH264's archives instead.
"""

import pathlib
import sys

# Functions for residuals, motion compensation and deblocking, and the fix if a build lacks them.
FUNCTIONS = {
    "x86_64": (
        ["IdctResAddPred_sse2", "McHorVer20WidthEq16_sse2", "DeblockLumaLt4V_ssse3"],
        "install nasm, then run cargo clean -p openh264-sys2 and build again",
    ),
    "arm64": (
        ["IdctResAddPred_AArch64_neon", "McHorVer20WidthEq16_AArch64_neon", "DeblockLumaLt4V_AArch64_neon"],
        "assemble OpenH264's NEON code (windows/neon.sh)",
    ),
}


def check(arch, files):
    """Returns a sentence about the missing functions, or None."""
    functions, fix = FUNCTIONS[arch]
    content = b"".join(pathlib.Path(f).read_bytes() for f in files)
    missing = [f for f in functions if f.encode() + b"\0" not in content]
    if missing:
        return f"{files[0]}: OpenH264 has no SIMD for {arch} (no function {', '.join(missing)}): {fix}"
    return None


def main(arguments):
    if len(arguments) < 2 or arguments[0] not in FUNCTIONS:
        sys.exit(__doc__)
    arch, *files = arguments
    try:
        wrong = check(arch, files)
    except OSError as e:
        sys.exit(f"{e.filename}: {e.strerror}")
    if wrong:
        sys.exit(wrong)
    print(f"{files[0]}: OpenH264 with SIMD for {arch}")


if __name__ == "__main__":
    main(sys.argv[1:])
