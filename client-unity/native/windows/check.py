"""Checks a Windows library: its imports against a list of allowed ones, and that store applications can load it.

    check.py uwp-arm64 holocast.dll        against allowed-uwp.txt, the flag must be set
    check.py x64 holocast.dll              against the libraries that every Windows 10 has
    check.py set-appcontainer holocast.dll sets the flag, for linkers that have no switch for it
"""

import fnmatch
import pathlib
import struct
import sys

APPCONTAINER = 0x1000
MACHINES = {0xAA64: "arm64", 0x8664: "x64"}
HERE = pathlib.Path(__file__).parent


class Library:
    """A PE32+ file (Microsoft, PE Format)."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.b = bytearray(self.path.read_bytes())
        (pe,) = struct.unpack_from("<I", self.b, 0x3C)
        if self.b[:2] != b"MZ" or self.b[pe : pe + 4] != b"PE\0\0":
            sys.exit(f"{path}: not a Windows library")
        machine, sections = struct.unpack_from("<HH", self.b, pe + 4)
        (optional,) = struct.unpack_from("<H", self.b, pe + 20)
        self.machine = MACHINES.get(machine, hex(machine))
        self.optional = pe + 24
        if struct.unpack_from("<H", self.b, self.optional)[0] != 0x20B:
            sys.exit(f"{path}: not a 64-bit library")
        at = self.optional + optional
        self.sections = [struct.unpack_from("<IIII", self.b, at + 40 * i + 8) for i in range(sections)]

    @property
    def appcontainer(self):
        return bool(struct.unpack_from("<H", self.b, self.optional + 70)[0] & APPCONTAINER)

    def set_appcontainer(self):
        (flags,) = struct.unpack_from("<H", self.b, self.optional + 70)
        struct.pack_into("<H", self.b, self.optional + 70, flags | APPCONTAINER)
        self.path.write_bytes(self.b)

    def offset(self, rva):
        for size, start, raw, at in self.sections:
            if start <= rva < start + max(size, raw):
                return rva - start + at
        sys.exit(f"{self.path}: address {rva:#x} is in no section")

    def text(self, rva):
        at = self.offset(rva)
        return self.b[at : self.b.index(0, at)].decode()

    def directory(self, n):
        return struct.unpack_from("<II", self.b, self.optional + 112 + 8 * n)

    def imports(self):
        """Imports as pairs of library (lower case) and function."""
        rva, _ = self.directory(1)
        found = set()
        while rva:
            names, _, _, library, addresses = struct.unpack_from("<IIIII", self.b, self.offset(rva))
            if not library:
                break
            at = self.offset(names or addresses)
            while entry := struct.unpack_from("<Q", self.b, at)[0]:
                name = f"#{entry & 0xFFFF}" if entry >> 63 else self.text((entry & 0x7FFFFFFF) + 2)
                found.add((self.text(library).lower(), name))
                at += 8
            rva += 20
        return found

    def exports(self):
        rva, _ = self.directory(0)
        if not rva:
            return set()
        at = self.offset(rva)
        count, _, names = struct.unpack_from("<III", self.b, at + 24)
        return {self.text(struct.unpack_from("<I", self.b, self.offset(names + 4 * i))[0]) for i in range(count)}


def rules(name):
    """Lines of a list: patterns of a library and its functions."""
    lines = (HERE / f"{name}.txt").read_text().splitlines()
    return [line.split() for line in lines if line and not line.startswith("#")]


def beyond(imports, rules):
    """The imports that no rule names."""

    def named(library, function):
        # Microsoft's linker imports kernel32 functions through API sets, which are aliases.
        names = {library, "kernel32.dll"} if library.startswith("api-ms-win-core-") else {library}
        return any(fnmatch.filter(names, l) and any(fnmatch.fnmatchcase(function, f) for f in fs) for l, *fs in rules)

    return [(library, function) for library, function in sorted(imports) if not named(library, function)]


def check(kind, path):
    lib, wrong = Library(path), []
    uwp = kind == "uwp-arm64"
    machine = "arm64" if uwp else "x64"
    if lib.machine != machine:
        wrong.append(f"is for {lib.machine}, not {machine}")
    if uwp and not lib.appcontainer:
        wrong.append("lacks the flag APPCONTAINER: store apps refuse to load it")
    imports = lib.imports()
    for library, function in beyond(imports, rules("allowed-uwp" if uwp else "allowed-x64")):
        wrong.append(f"imports {function} from {library}, which is not in the list of allowed functions")
    header = (HERE / "../include/holocast.h").read_text()
    missing = [w for w in set(header.replace("(", " ").split()) if w.startswith("hc_") and w not in lib.exports()]
    declared = [m for m in missing if f" {m}(" in header]
    wrong += [f"does not export {m}" for m in sorted(declared)]
    for w in wrong:
        print(f"{path}: {w}", file=sys.stderr)
    libraries = sorted({library for library, _ in imports})
    print(f"{path}: {lib.machine}, {len(lib.b)} bytes, {len(imports)} imports of {', '.join(libraries)}"
          + (", APPCONTAINER" if lib.appcontainer else ""))
    if uwp:
        new = [f"{library}!{function}" for library, function in beyond(imports, rules("ran-on-hololens"))]
        print(f"{path}: imports not yet seen running on a HoloLens ({len(new)}): {', '.join(new)}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    if sys.argv[1] == "set-appcontainer":
        Library(sys.argv[2]).set_appcontainer()
    else:
        check(sys.argv[1], sys.argv[2])
