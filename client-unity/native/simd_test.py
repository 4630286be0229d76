"""Tests simd.py. Run by `make test`."""

import pathlib
import tempfile
import unittest

import simd


class Functions(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def library(self, name, *functions):
        path = pathlib.Path(self.folder.name) / name
        path.write_bytes(b"\x7fELF\0" + b"".join(f.encode() + b"\0" for f in functions))
        return path

    def test_complete(self):
        for arch, (functions, _) in simd.FUNCTIONS.items():
            self.assertIsNone(simd.check(arch, [self.library("whole", "hc_open", *functions)]))
            # Mach-O prefixes names with an underscore, and archives come as several files.
            parts = [self.library(f, f"_{f}") for f in functions]
            self.assertIsNone(simd.check(arch, parts))

    def test_lacks_nasm(self):
        path = self.library("libholocast.so", "IdctResAddPred_c", "IdctResAddPred_sse2_", "McHorVer20WidthEq16_sse2")
        self.assertEqual(
            simd.check("x86_64", [path]),
            f"{path}: OpenH264 has no SIMD for x86_64 (no function IdctResAddPred_sse2, DeblockLumaLt4V_ssse3): "
            "install nasm, then run cargo clean -p openh264-sys2 and build again",
        )

    def test_other_architecture(self):
        path = self.library("libholocast.dylib", *simd.FUNCTIONS["x86_64"][0])
        self.assertIn("no SIMD for arm64", simd.check("arm64", [path]))


unittest.main()
