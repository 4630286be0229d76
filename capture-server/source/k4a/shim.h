// The part of libk4a's ABI (Azure Kinect Sensor SDK 1.4) needed for capture, resolved with dlsym.
#ifndef HOLOCAST_K4A_SHIM_H
#define HOLOCAST_K4A_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef void *k4a_handle; // device, capture or image

struct k4a_config {
	int color_format;
	int color_resolution;
	int depth_mode;
	int camera_fps;
	bool synchronized_images_only;
	int32_t depth_delay_off_color_usec;
	int wired_sync_mode;
	uint32_t subordinate_delay_off_master_usec;
	bool disable_streaming_indicator;
};

struct k4a_api {
	uint32_t (*device_get_installed_count)(void);
	int (*device_open)(uint32_t index, k4a_handle *device);
	void (*device_close)(k4a_handle device);
	int (*device_get_serialnum)(k4a_handle device, char *serial, size_t *size);
	int (*device_get_raw_calibration)(k4a_handle device, uint8_t *data, size_t *size);
	int (*device_start_cameras)(k4a_handle device, const struct k4a_config *config);
	void (*device_stop_cameras)(k4a_handle device);
	int (*device_get_capture)(k4a_handle device, k4a_handle *capture, int32_t timeout_ms);
	void (*capture_release)(k4a_handle capture);
	k4a_handle (*capture_get_color_image)(k4a_handle capture);
	k4a_handle (*capture_get_depth_image)(k4a_handle capture);
	uint8_t *(*image_get_buffer)(k4a_handle image);
	size_t (*image_get_size)(k4a_handle image);
	int (*image_get_width_pixels)(k4a_handle image);
	int (*image_get_height_pixels)(k4a_handle image);
	int (*image_get_stride_bytes)(k4a_handle image);
	uint64_t (*image_get_device_timestamp_usec)(k4a_handle image);
	uint64_t (*image_get_system_timestamp_nsec)(k4a_handle image);
	void (*image_release)(k4a_handle image);
	int (*set_debug_message_handler)(void *handler, void *context, int level);
};

// shim_image is one image of a capture; image is NULL if there is none.
struct shim_image {
	k4a_handle image;
	uint8_t *data;
	size_t size;
	int width, height, stride;
	uint64_t device_us, system_ns;
};

struct shim_capture {
	k4a_handle capture;
	struct shim_image color, depth;
};

// Loads the library at path and never unloads it. On failure, returns false and sets why to the
// reason.
bool shim_load(const char *path, struct k4a_api *api, char *why, size_t why_size);
// Loads a library so that libk4a finds it by name.
void shim_preload(const char *path);

uint32_t shim_count(const struct k4a_api *api);
int shim_open(const struct k4a_api *api, uint32_t index, k4a_handle *device);
void shim_close(const struct k4a_api *api, k4a_handle device);
int shim_serial(const struct k4a_api *api, k4a_handle device, char *serial, size_t *size);
int shim_calibration(const struct k4a_api *api, k4a_handle device, uint8_t *data, size_t *size);
int shim_start(const struct k4a_api *api, k4a_handle device, const struct k4a_config *config);
void shim_stop(const struct k4a_api *api, k4a_handle device);
int shim_capture(const struct k4a_api *api, k4a_handle device, int32_t timeout_ms, struct shim_capture *c);
void shim_release(const struct k4a_api *api, struct shim_capture *c);

// Moves the error messages that libk4a logged since the last call into text, newest last. Returns
// their length.
size_t shim_messages(char *text, size_t size);

#endif
