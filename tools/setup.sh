#!/usr/bin/env bash
# Installs missing build dependencies of Holocast on Debian or Ubuntu. Safe to run repeatedly.
#
#   --test      also for the tests
#   --bpf       also to compile the eBPF programs (their objects are committed)
#   --deploy    also to test the packages
#   --images    also to build the images
#   --site      also to build the documentation site
#   --arm64     also to build for 64-bit ARM
#   --kernels   also to test on other kernels
set -euo pipefail

min_go=1.26
need=()
optional=()
have() { dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q 'ok installed'; }
want() { have "$1" || need+=("$1"); }

want gcc
want libc6-dev
want pkg-config
want libturbojpeg0-dev
want libzstd-dev
want libopus-dev
want libx264-dev
# The library package is named after its version; libopenh264-dev depends on the current one.
have libopenh264-7 || have libopenh264-8 || want libopenh264-dev
want ffmpeg
want iproute2
if [[ "${1:-}" == --test ]]; then
	command -v chromium >/dev/null || command -v chromium-browser >/dev/null || want chromium
	# Loads pages in less CPU time. Ubuntu lacks it.
	have chromium-headless-shell || optional+=(chromium-headless-shell)
	# Mesa's software OpenGL, for Chromium.
	want libegl1
	want libegl-mesa0
	want libgl1-mesa-dri
	# The Azure Kinect SDK and the readers of exports come from PyPI; the OpenFlow controller is Python.
	python3 -m pip --version >/dev/null 2>&1 || want python3-pip
	python3 -c 'import ensurepip' 2>/dev/null || want python3-venv
	command -v ovs-vswitchd >/dev/null || want openvswitch-switch
	command -v ethtool >/dev/null || want ethtool
	# A real Prometheus evaluates the dashboards' queries; systemd-analyze verifies the units.
	command -v prometheus >/dev/null || want prometheus
	command -v systemd-analyze >/dev/null || want systemd
	# A sound server with microphones that tests plug in and out.
	command -v pulseaudio >/dev/null || want pulseaudio
	command -v pactl >/dev/null || want pulseaudio-utils
	# Unity client: a C++ decoder and its assembler, Microsoft's shader compiler, and a software Vulkan driver.
	want g++
	want nasm
	want wine64
	want glslang-tools
	want mesa-vulkan-drivers
	if ! command -v cargo >/dev/null; then
		echo "setup: Rust (cargo) is missing; see https://rustup.rs" >&2
		exit 1
	fi
elif [[ "${1:-}" == --deploy ]]; then
	want dpkg-dev
	want lintian
	want mmdebstrap
	want rpm
	want systemd-container
elif [[ "${1:-}" == --images ]]; then
	want buildah
	want mmdebstrap
elif [[ "${1:-}" == --arm64 ]]; then
	want gcc-aarch64-linux-gnu
	want libc6-dev-arm64-cross
	want mmdebstrap
	want qemu-user
elif [[ "${1:-}" == --site ]]; then
	command -v chromium >/dev/null || command -v chromium-browser >/dev/null || want chromium
	python3 -c 'import ensurepip' 2>/dev/null || want python3-venv
	want curl
	want iputils-ping
elif [[ "${1:-}" == --kernels ]]; then
	want qemu-system-x86
	want debian-archive-keyring
	want dpkg
	want xz-utils
	want zstd
elif [[ "${1:-}" == --bpf ]]; then
	want clang
	want llvm
	want libbpf-dev
fi

if ! command -v go >/dev/null; then
	echo "setup: Go $min_go or newer is missing; see https://go.dev/dl" >&2
	exit 1
fi
version=$(go env GOVERSION)
if [[ $(printf '%s\n' "go$min_go" "$version" | sort -V | head -n 1) != "go$min_go" ]]; then
	echo "setup: this is $version; Holocast needs go$min_go or newer" >&2
	exit 1
fi

install() {
	local as_root=()
	if ! command -v apt-get >/dev/null; then
		echo "setup: install the equivalents of these Debian packages: $*" >&2
		return 1
	fi
	if ((EUID != 0)); then
		command -v sudo >/dev/null || { echo "setup: run as root, or install: $*" >&2; return 1; }
		as_root=(sudo)
	fi
	echo "setup: installing $*"
	"${as_root[@]}" apt-get update -qq &&
		DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}
if ((${#need[@]})); then install "${need[@]}"; fi
for p in "${optional[@]}"; do
	apt-cache show "$p" >/dev/null 2>&1 || continue # not in this distribution
	install "$p" || echo "setup: continuing without $p" >&2
done
