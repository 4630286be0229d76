package k4a

/*
#cgo CFLAGS: -Wall -Wextra -O2
#cgo LDFLAGS: -ldl -lpthread
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unsafe"
)

// LibraryEnv is the environment variable with the path of libk4a, used if Options.Library is "".
const LibraryEnv = "HOLOCAST_LIBK4A"

// Errors returned by Open and List, for use with errors.Is.
var (
	ErrNoLibrary = errors.New(
		"no libk4a found. Install the Azure Kinect Sensor SDK (package libk4a1.4 of packages.microsoft.com) or " +
			"Orbbec's K4A wrapper; " +
			"or, on x86_64, run `pip download --no-deps pyk4a-bundle==1.5.0`, unzip it and set library (or " +
			LibraryEnv + ") to its directory pyk4a_bundle.libs",
	)
	ErrNoDevice = errors.New(
		"no camera found. Check its USB 3 cable and its power supply: `lsusb -d 045e:` lists an Azure Kinect as " +
			"045e:097c and 045e:097d",
	)
	// ErrPermission is returned if the user lacks permission to open the camera.
	ErrPermission = errors.New("no permission to open the camera. Copy 99-k4a.rules (in the folder scripts of the " +
		"Azure Kinect Sensor SDK's repository) to /etc/udev/rules.d and plug the camera in again, or run as root")
	// ErrNoDepthEngine is returned if libk4a cannot load its depth engine.
	ErrNoDepthEngine = errors.New("libk4a cannot start its depth engine. Put libdepthengine.so.2.0 (part of package " +
		"libk4a1.4 and of the wheel pyk4a-bundle) in libk4a's directory; it needs OpenGL 4.4 and, without a screen, " +
		"DISPLAY=:0 of a running X server")
	// ErrUnplugged is returned if a camera no longer delivers captures.
	ErrUnplugged = errors.New("the camera was unplugged or its USB connection failed")
)

// library is libk4a, loaded at run time. It is never unloaded, as it has its own threads.
type library struct {
	api  *C.struct_k4a_api
	path string
}

// load finds and loads libk4a. path is a file or directory; "" uses LibraryEnv, then the system's
// loader.
func load(path string) (*library, error) {
	if path == "" {
		path = os.Getenv(LibraryEnv)
	}
	candidates := []string{"libk4a.so.1.4", "libk4a.so.1", "libk4a.so"}
	if path != "" {
		st, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("%w (%w)", ErrNoLibrary, err)
		}
		candidates = []string{path}
		if st.IsDir() {
			candidates = nil
			for _, pattern := range []string{"libk4a.so*", "libk4a-*.so*"} {
				files, err := filepath.Glob(filepath.Join(path, pattern))
				if err != nil {
					return nil, fmt.Errorf("library %q: %w", path, err)
				}
				candidates = append(candidates, files...)
			}
			if len(candidates) == 0 {
				return nil, fmt.Errorf("%w (directory %s has no libk4a.so)", ErrNoLibrary, path)
			}
		}
	}
	// Prevent libk4a from logging to the program's standard output.
	if _, set := os.LookupEnv("K4A_ENABLE_LOG_TO_STDOUT"); !set {
		if err := os.Setenv("K4A_ENABLE_LOG_TO_STDOUT", "0"); err != nil {
			return nil, err
		}
	}

	l := &library{api: (*C.struct_k4a_api)(C.calloc(1, C.sizeof_struct_k4a_api))}
	var reasons []string
	for _, candidate := range candidates {
		var why [512]C.char
		name := C.CString(candidate)
		ok := bool(C.shim_load(name, l.api, &why[0], C.size_t(len(why))))
		C.free(unsafe.Pointer(name))
		if ok {
			l.path = candidate
			l.preloadDepthEngine()
			return l, nil
		}
		reasons = append(reasons, C.GoString(&why[0]))
	}
	C.free(unsafe.Pointer(l.api))
	return nil, fmt.Errorf("%w (%s)", ErrNoLibrary, strings.Join(reasons, "; "))
}

// preloadDepthEngine loads the depth engine from the library's directory, where libk4a itself does
// not search.
func (l *library) preloadDepthEngine() {
	engine := filepath.Join(filepath.Dir(l.path), "libdepthengine.so.2.0")
	if _, err := os.Stat(engine); err != nil || !strings.Contains(l.path, "/") {
		return
	}
	name := C.CString(engine)
	defer C.free(unsafe.Pointer(name))
	C.shim_preload(name)
}

// messages returns the lines logged by libk4a since the last call.
func messages() []string {
	var text [8192]C.char
	n := C.shim_messages(&text[0], C.size_t(len(text)))
	return strings.Split(strings.TrimSpace(C.GoStringN(&text[0], C.int(n))), "\n")
}

// failure explains a failed call with the lines that libk4a has logged.
func failure(what string) error {
	lines := messages()
	for _, line := range lines {
		lower := strings.ToLower(line)
		switch {
		case strings.Contains(lower, "depth engine"), strings.Contains(lower, "libdepthengine"):
			return fmt.Errorf("%w (%s)", ErrNoDepthEngine, line)
		case strings.Contains(lower, "are all unavalable"), // sic; libusb refused every camera
			strings.Contains(lower, "libusb_error_access"), strings.Contains(lower, "permission"):
			return fmt.Errorf("%w (%s)", ErrPermission, line)
		}
	}
	// libk4a logs the cause first, then each failing caller.
	if lines[0] == "" {
		return fmt.Errorf("%s failed; is another program using the camera?", what)
	}
	return fmt.Errorf("%s failed; is another program using the camera? (%s)", what, lines[0])
}
