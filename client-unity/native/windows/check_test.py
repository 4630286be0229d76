"""Tests check.py's lists of imports. Run by `make test`."""

import unittest

import check


class Imports(unittest.TestCase):
    def setUp(self):
        self.allowed, self.ran = check.rules("allowed-uwp"), check.rules("ran-on-hololens")

    def test_library_that_ran_is_allowed(self):
        ran = {(library, function) for library, *functions in self.ran for function in functions}
        self.assertIn(("api-ms-win-core-libraryloader-l1-2-0.dll", "DisableThreadLibraryCalls"), ran)
        self.assertIn(("ws2_32.dll", "#3"), ran)  # a function by number
        self.assertEqual(check.beyond(ran, self.allowed), [])
        self.assertEqual(check.beyond(ran, self.ran), [])

    def test_refused(self):
        desktop = {("kernel32.dll", "CreateProcessW"), ("user32.dll", "MessageBoxW"), ("advapi32.dll", "RegOpenKeyExW")}
        self.assertEqual(check.beyond(desktop, self.allowed), sorted(desktop))

    def test_beyond(self):
        imports = {("api-ms-win-core-heap-l1-1-0.dll", "HeapAlloc"), ("kernel32.dll", "VirtualProtect")}
        self.assertEqual(check.beyond(imports, self.ran), [("kernel32.dll", "VirtualProtect")])


unittest.main()
