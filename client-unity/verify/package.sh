#!/usr/bin/env bash
# Tests the released package: packs it with stand-ins for the libraries, and checks the archive, a
# clone of the branch upm, and that faults are found. verify.sh package runs it.
#
#   package.sh VERIFY…     the command that runs Tool
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
plugins=$root/client-unity/plugins
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Headers as Editor/NativeLibrary.cs expects them.
python3 - "$scratch" <<'END'
import pathlib, struct, sys

def library(size, *fields):
    b = bytearray(size)
    for at, form, value in fields:
        struct.pack_into(form, b, at, value)
    return bytes(b)

def pe(machine, flags):
    return library(256, (0, "<H", 0x5A4D), (60, "<I", 64), (64, "<I", 0x4550), (68, "<H", machine),
                   (86, "<H", 0x2022), (88, "<H", 0x20B), (158, "<H", flags))

def elf(machine, owner, page=0x4000):
    return library(216, (0, "4s", b"\x7fELF"), (4, "<H", 0x102), (16, "<H", 3), (18, "<H", machine),
                   (32, "<Q", 64), (54, "<H", 56), (56, "<H", 2), (64, "<I", 4), (72, "<Q", 176),
                   (96, "<Q", 24), (120, "<I", 1), (168, "<Q", page), (176, "<I", 8), (180, "<I", 4),
                   (184, "<I", 1), (188, "8s", owner))

files = {
    "all/windows-x64/x86_64/holocast.dll": pe(0x8664, 0x160),
    "all/hololens-arm64/WSA/ARM64/holocast.dll": pe(0xAA64, 0x1160),
    "all/linux-x64/x86_64/libholocast.so": elf(62, b"GNU"),
    "all/android-arm64/Android/arm64-v8a/libholocast.so": elf(183, b"Android"),
    "all/macos/macOS/libholocast.dylib": library(64, (0, ">I", 0xCAFEBABE), (4, ">I", 2), (8, ">I", 0x1000007)),
    "other/desktop-arm64.dll": pe(0xAA64, 0x160),
    "other/linux-arm64.so": elf(183, b"GNU"),
    "pages.so": elf(183, b"Android", 0x1000),
    "other/text.dll": b"text",
    "other/empty.so": b"",
}
for name, content in files.items():
    file = pathlib.Path(sys.argv[1], name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
END

failed=
fail() {
	echo "package: $*" >&2
	failed=1
}
verify=("$@")
check() { "${verify[@]}" released "$1"; }

"$plugins/package.sh" "$scratch/all" "$scratch/out" 1.2.3-rc.1 >/dev/null
tar xzf "$scratch/out/dev.holocast.client-1.2.3-rc.1.tgz" -C "$scratch"
check "$scratch/package" || fail "the archive is incomplete"
grep -q '"version": "1.2.3-rc.1"' "$scratch/package/package.json" || fail "the archive has another version"
diff -r "$root/client-unity/Packages/dev.holocast.client" "$scratch/package" | grep -v -e ' Plugins' -e 'Plugins:' \
	| grep '^Only in' | sed 's/^/package: /' >&2 && failed=1

# Two releases on the branch, cloned as Unity does.
git init --quiet --bare "$scratch/remote"
export GIT_AUTHOR_NAME=test GIT_AUTHOR_EMAIL=test@localhost GIT_COMMITTER_NAME=test GIT_COMMITTER_EMAIL=test@localhost
(cd "$root" && "$plugins/upm.sh" "$scratch/out/dev.holocast.client" "$scratch/remote")
"$plugins/package.sh" "$scratch/all" "$scratch/out" 1.2.3 >/dev/null
(cd "$root" && "$plugins/upm.sh" "$scratch/out/dev.holocast.client" "$scratch/remote")
for ref in upm upm/v1.2.3 upm/v1.2.3-rc.1; do
	rm -rf "$scratch/clone"
	git clone --quiet --branch "$ref" "$scratch/remote" "$scratch/clone" 2>/dev/null
	check "$scratch/clone/client-unity/Packages/dev.holocast.client" >/dev/null || fail "$ref is incomplete"
done
[[ $(git -C "$scratch/remote" rev-list --count upm) == 2 ]] || fail "the branch upm does not continue"

# Faults, each with words from its error message.
fault() { # WORDS COMMAND…: in a copy of the package
	local words=$1
	shift
	rm -rf "$scratch/bad"
	cp -R "$scratch/package" "$scratch/bad"
	(cd "$scratch/bad" && "$@")
	if check "$scratch/bad" >"$scratch/log" 2>&1 || ! grep -q "$words" "$scratch/log"; then
		fail "not found: $words"
		cat "$scratch/log" >&2
	fi
}
fault "holocast.dll has no .meta" rm Plugins/WSA/ARM64/holocast.dll.meta
fault "Plugins/WSA/ARM64/holocast.dll is missing" rm Plugins/WSA/ARM64/holocast.dll
fault "is for Windows" cp Plugins/x86_64/holocast.dll Plugins/WSA/ARM64/holocast.dll
fault "HoloLens 2 needs a UWP build" cp "$scratch/other/desktop-arm64.dll" Plugins/WSA/ARM64/holocast.dll
fault "pages of 4 KiB" cp "$scratch/pages.so" Plugins/Android/arm64-v8a/libholocast.so
fault "is truncated" cp "$scratch/other/empty.so" Plugins/x86_64/libholocast.so
fault ".meta enables" sed -i 's/CPU: ARM64/CPU: ARM/' Plugins/WSA/ARM64/holocast.dll.meta
fault "HoloLens.unity refers to asset" rm Runtime/Session/HolocastSession.cs.meta
fault "Mrtk.meta has no asset" rm -r Mrtk
for file in "$scratch"/other/*; do
	! HOLOCAST_PLUGINS=$scratch/plugins "$plugins/install.sh" "$file" >/dev/null 2>&1 || fail "installs ${file##*/}"
done
rm "$scratch/all/macos/macOS/libholocast.dylib"
! "$plugins/package.sh" "$scratch/all" "$scratch/out2" 2>"$scratch/log" >/dev/null || fail "packs without macOS"
grep -q "lacks the libraries macOS/libholocast.dylib" "$scratch/log" || fail "the missing library is not named"

[[ -z $failed ]]
