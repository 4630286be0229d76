"""Prints results of Microsoft's Azure Kinect SDK, for k4acheck_test.go to compare.

usage: sdk.py LIBDIR cloud  CALIBRATION DEPTH_MODE DEPTH OUT
       sdk.py LIBDIR pixels CALIBRATION DEPTH_MODE COLOR_MODE STEP DEPTH OUT
       sdk.py LIBDIR captures RECORDING
       sdk.py LIBDIR kill CALIBRATION COUNT RECORDING

cloud     DEPTH is an image of the mode's size, little-endian uint16 in millimetres. OUT gets
          k4a_transformation_depth_image_to_point_cloud's points: 3 int16 per pixel.
pixels    OUT gets, for every STEP-th depth pixel in both directions at DEPTH millimetres, the
          colour pixel: 3 float32, u v valid.
captures  Prints the recording's captures as libk4arecord reads them, one JSON object.
kill      Records COUNT captures at 30 per second, NFOV_2X2BINNED without colour, and kills itself
          before it closes the file, once that has ten of them. Every pixel of capture i is i.

LIBDIR holds libk4a and libk4arecord. The depth engine is not needed: it computes only what
runs on the GPU.
"""

import ctypes
import glob
import json
import os
import signal
import sys
import time
import zlib

DEPTH_MODES = ["OFF", "NFOV_2X2BINNED", "NFOV_UNBINNED", "WFOV_2X2BINNED", "WFOV_UNBINNED", "PASSIVE_IR"]
COLOR_MODES = ["OFF", "720P", "1080P", "1440P", "1536P", "2160P", "3072P"]
IMAGE_DEPTH16, IMAGE_IR16, IMAGE_CUSTOM = 4, 5, 8
FPS_30 = 2
CALIBRATION_DEPTH, CALIBRATION_COLOR = 0, 1
STREAM_SUCCEEDED, STREAM_EOF = 0, 2
CALIBRATION_SIZE = 4096  # more than sizeof(k4a_calibration_t)


def check(result, what):
    if result != 0:
        sys.exit(f"{what} failed")


class SDK:
    def __init__(self, libdir):
        self.k4a = ctypes.CDLL(glob.glob(libdir + "/libk4a-*.so*")[0], mode=ctypes.RTLD_GLOBAL)
        self.record = ctypes.CDLL(glob.glob(libdir + "/libk4arecord-*.so*")[0])
        for name in ("k4a_transformation_create", "k4a_image_get_buffer", "k4a_capture_get_color_image",
                     "k4a_capture_get_depth_image", "k4a_capture_get_ir_image"):
            getattr(self.k4a, name).restype = ctypes.c_void_p
        self.k4a.k4a_image_get_size.restype = ctypes.c_size_t
        self.k4a.k4a_image_get_device_timestamp_usec.restype = ctypes.c_uint64
        self.record.k4a_playback_get_recording_length_usec.restype = ctypes.c_uint64

    def calibration(self, path, depth_mode, color_mode):
        with open(path, "rb") as f:
            raw = f.read().rstrip(b"\0") + b"\0"
        calibration = ctypes.create_string_buffer(CALIBRATION_SIZE)
        check(self.k4a.k4a_calibration_get_from_raw(
            raw, ctypes.c_size_t(len(raw)), DEPTH_MODES.index(depth_mode), COLOR_MODES.index(color_mode), calibration),
            "k4a_calibration_get_from_raw")
        return calibration

    def image(self, fmt, width, height, stride):
        image = ctypes.c_void_p()
        check(self.k4a.k4a_image_create(fmt, width, height, stride, ctypes.byref(image)), "k4a_image_create")
        return image

    def pixels_of(self, image):
        size = self.k4a.k4a_image_get_size(image)
        return (ctypes.c_ubyte * size).from_address(self.k4a.k4a_image_get_buffer(image))


SIZES = {
    "NFOV_2X2BINNED": (320, 288),
    "NFOV_UNBINNED": (640, 576),
    "WFOV_2X2BINNED": (512, 512),
    "WFOV_UNBINNED": (1024, 1024),
}


def cloud(sdk, calibration, mode, depth_file, out):
    width, height = SIZES[mode]
    # Without color the transformation runs on the CPU.
    transformation = ctypes.c_void_p(sdk.k4a.k4a_transformation_create(sdk.calibration(calibration, mode, "OFF")))
    if not transformation:
        sys.exit("k4a_transformation_create failed")
    depth = sdk.image(IMAGE_DEPTH16, width, height, 2 * width)
    points = sdk.image(IMAGE_CUSTOM, width, height, 6 * width)
    with open(depth_file, "rb") as f:
        sdk.pixels_of(depth)[:] = f.read()
    check(sdk.k4a.k4a_transformation_depth_image_to_point_cloud(transformation, depth, CALIBRATION_DEPTH, points),
          "k4a_transformation_depth_image_to_point_cloud")
    with open(out, "wb") as f:
        f.write(bytes(sdk.pixels_of(points)))


def pixels(sdk, calibration, mode, color_mode, step, depth, out):
    calibration = sdk.calibration(calibration, mode, color_mode)
    width, height = SIZES[mode]
    source, target, valid = (ctypes.c_float * 2)(), (ctypes.c_float * 2)(), ctypes.c_int()
    result = (ctypes.c_float * 3)
    with open(out, "wb") as f:
        for v in range(0, height, int(step)):
            for u in range(0, width, int(step)):
                source[0], source[1] = u, v
                check(sdk.k4a.k4a_calibration_2d_to_2d(
                    calibration, source, ctypes.c_float(float(depth)), CALIBRATION_DEPTH, CALIBRATION_COLOR,
                    target, ctypes.byref(valid)), "k4a_calibration_2d_to_2d")
                f.write(bytes(result(target[0], target[1], valid.value)))


def captures(sdk, path):
    playback = ctypes.c_void_p()
    check(sdk.record.k4a_playback_open(path.encode(), ctypes.byref(playback)), "k4a_playback_open")
    found, imu = [], 0
    while True:
        capture = ctypes.c_void_p()
        result = sdk.record.k4a_playback_get_next_capture(playback, ctypes.byref(capture))
        if result == STREAM_EOF:
            break
        check(result, "k4a_playback_get_next_capture")
        entry = {}
        for name in ("color", "depth", "ir"):
            image = getattr(sdk.k4a, f"k4a_capture_get_{name}_image")(capture)
            if image:
                image = ctypes.c_void_p(image)
                entry[name] = {
                    "us": sdk.k4a.k4a_image_get_device_timestamp_usec(image),
                    "crc32": zlib.crc32(bytes(sdk.pixels_of(image))),
                }
                sdk.k4a.k4a_image_release(image)
        found.append(entry)
        sdk.k4a.k4a_capture_release(capture)
    sample = ctypes.create_string_buffer(64)
    while sdk.record.k4a_playback_get_next_imu_sample(playback, sample) == STREAM_SUCCEEDED:
        imu += 1
    size = ctypes.c_size_t()
    sdk.record.k4a_playback_get_raw_calibration(playback, None, ctypes.byref(size))
    raw = ctypes.create_string_buffer(size.value)
    sdk.record.k4a_playback_get_raw_calibration(playback, raw, ctypes.byref(size))
    # Seeking backwards needs the index.
    middle = sdk.record.k4a_playback_get_recording_length_usec(playback) // 2
    check(sdk.record.k4a_playback_seek_timestamp(playback, ctypes.c_int64(middle), 0), "k4a_playback_seek_timestamp")
    capture = ctypes.c_void_p()
    after_seek = sdk.record.k4a_playback_get_next_capture(playback, ctypes.byref(capture)) == STREAM_SUCCEEDED
    if after_seek:
        sdk.k4a.k4a_capture_release(capture)
    json.dump({
        "captures": found,
        "imu": imu,
        "length_us": sdk.record.k4a_playback_get_recording_length_usec(playback),
        "calibration_crc32": zlib.crc32(raw.raw.rstrip(b"\0")),
        "captures_after_seek": after_seek,
    }, sys.stdout)
    sdk.record.k4a_playback_close(playback)


class DeviceConfiguration(ctypes.Structure):
    _fields_ = [
        ("color_format", ctypes.c_int), ("color_resolution", ctypes.c_int), ("depth_mode", ctypes.c_int),
        ("camera_fps", ctypes.c_int), ("synchronized_images_only", ctypes.c_bool), ("depth_delay", ctypes.c_int32),
        ("wired_sync_mode", ctypes.c_int), ("subordinate_delay", ctypes.c_uint32),
        ("no_streaming_indicator", ctypes.c_bool),
    ]


def kill(sdk, calibration, count, path):
    mode = "NFOV_2X2BINNED"
    width, height = SIZES[mode]
    configuration = DeviceConfiguration(depth_mode=DEPTH_MODES.index(mode), camera_fps=FPS_30)
    recording = ctypes.c_void_p()
    check(sdk.record.k4a_record_create(path.encode(), None, configuration, ctypes.byref(recording)),
          "k4a_record_create")
    with open(calibration, "rb") as f:
        document = f.read()
    check(sdk.record.k4a_record_add_attachment(
        recording, b"calibration.json", document, ctypes.c_size_t(len(document))), "k4a_record_add_attachment")
    check(sdk.record.k4a_record_write_header(recording), "k4a_record_write_header")
    for i in range(int(count)):
        capture = ctypes.c_void_p()
        check(sdk.k4a.k4a_capture_create(ctypes.byref(capture)), "k4a_capture_create")
        for fmt, add in ((IMAGE_DEPTH16, sdk.k4a.k4a_capture_set_depth_image),
                         (IMAGE_IR16, sdk.k4a.k4a_capture_set_ir_image)):
            image = sdk.image(fmt, width, height, 2 * width)
            sdk.pixels_of(image)[:] = i.to_bytes(2, "little") * (width * height)
            sdk.k4a.k4a_image_set_device_timestamp_usec(image, ctypes.c_uint64(2_000_000 + i * 1_000_000 // 30))
            add(capture, image)
            sdk.k4a.k4a_image_release(image)
        check(sdk.record.k4a_record_write_capture(recording, capture), "k4a_record_write_capture")
        sdk.k4a.k4a_capture_release(capture)
    # Wait until the library's thread, which writes captures older than two seconds, has written
    # ten.
    while os.path.getsize(path) < 10 * 2 * 2 * width * height:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)


def main():
    commands = {"cloud": (cloud, 4), "pixels": (pixels, 6), "captures": (captures, 1), "kill": (kill, 3)}
    if len(sys.argv) < 3 or sys.argv[2] not in commands or len(sys.argv) - 3 != commands[sys.argv[2]][1]:
        sys.exit(__doc__)
    commands[sys.argv[2]][0](SDK(sys.argv[1]), *sys.argv[3:])


main()
