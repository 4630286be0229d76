#include "shim.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

// libk4a explains failures only in log messages, which any thread may deliver.
static pthread_mutex_t messages_lock = PTHREAD_MUTEX_INITIALIZER;
static char messages[8192];
static size_t messages_size;

static void on_message(void *context, int level, const char *file, const int line, const char *message)
{
	(void)context, (void)level, (void)file, (void)line;
	size_t n = strlen(message);
	if (n > 1024)
		n = 1024;
	pthread_mutex_lock(&messages_lock);
	if (messages_size + n + 1 > sizeof(messages)) { // drop the older half
		size_t half = messages_size / 2;
		memmove(messages, messages + half, messages_size - half);
		messages_size -= half;
	}
	memcpy(messages + messages_size, message, n);
	messages_size += n;
	messages[messages_size++] = '\n';
	pthread_mutex_unlock(&messages_lock);
}

size_t shim_messages(char *text, size_t size)
{
	pthread_mutex_lock(&messages_lock);
	size_t n = messages_size < size ? messages_size : size;
	memcpy(text, messages + messages_size - n, n);
	messages_size = 0;
	pthread_mutex_unlock(&messages_lock);
	return n;
}

bool shim_load(const char *path, struct k4a_api *api, char *why, size_t why_size)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		snprintf(why, why_size, "%s", dlerror());
		return false;
	}
	const struct {
		const char *name;
		void *function;
	} symbols[] = {
		{"k4a_device_get_installed_count", &api->device_get_installed_count},
		{"k4a_device_open", &api->device_open},
		{"k4a_device_close", &api->device_close},
		{"k4a_device_get_serialnum", &api->device_get_serialnum},
		{"k4a_device_get_raw_calibration", &api->device_get_raw_calibration},
		{"k4a_device_start_cameras", &api->device_start_cameras},
		{"k4a_device_stop_cameras", &api->device_stop_cameras},
		{"k4a_device_get_capture", &api->device_get_capture},
		{"k4a_capture_release", &api->capture_release},
		{"k4a_capture_get_color_image", &api->capture_get_color_image},
		{"k4a_capture_get_depth_image", &api->capture_get_depth_image},
		{"k4a_image_get_buffer", &api->image_get_buffer},
		{"k4a_image_get_size", &api->image_get_size},
		{"k4a_image_get_width_pixels", &api->image_get_width_pixels},
		{"k4a_image_get_height_pixels", &api->image_get_height_pixels},
		{"k4a_image_get_stride_bytes", &api->image_get_stride_bytes},
		{"k4a_image_get_device_timestamp_usec", &api->image_get_device_timestamp_usec},
		{"k4a_image_get_system_timestamp_nsec", &api->image_get_system_timestamp_nsec},
		{"k4a_image_release", &api->image_release},
		{"k4a_set_debug_message_handler", &api->set_debug_message_handler},
	};
	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		void *function = dlsym(library, symbols[i].name);
		if (!function) {
			snprintf(why, why_size, "%s: no function %s", path, symbols[i].name);
			dlclose(library);
			return false;
		}
		memcpy(symbols[i].function, &function, sizeof(function));
	}
	api->set_debug_message_handler((void *)on_message, NULL, 1 /* errors */);
	return true;
}

void shim_preload(const char *path) { dlopen(path, RTLD_NOW | RTLD_LOCAL); }

uint32_t shim_count(const struct k4a_api *api) { return api->device_get_installed_count(); }

int shim_open(const struct k4a_api *api, uint32_t index, k4a_handle *device)
{
	return api->device_open(index, device);
}

void shim_close(const struct k4a_api *api, k4a_handle device) { api->device_close(device); }

int shim_serial(const struct k4a_api *api, k4a_handle device, char *serial, size_t *size)
{
	return api->device_get_serialnum(device, serial, size);
}

int shim_calibration(const struct k4a_api *api, k4a_handle device, uint8_t *data, size_t *size)
{
	return api->device_get_raw_calibration(device, data, size);
}

int shim_start(const struct k4a_api *api, k4a_handle device, const struct k4a_config *config)
{
	return api->device_start_cameras(device, config);
}

void shim_stop(const struct k4a_api *api, k4a_handle device) { api->device_stop_cameras(device); }

static void get_image(const struct k4a_api *api, k4a_handle image, struct shim_image *out)
{
	if (!image)
		return;
	out->image = image;
	out->data = api->image_get_buffer(image);
	out->size = api->image_get_size(image);
	out->width = api->image_get_width_pixels(image);
	out->height = api->image_get_height_pixels(image);
	out->stride = api->image_get_stride_bytes(image);
	out->device_us = api->image_get_device_timestamp_usec(image);
	out->system_ns = api->image_get_system_timestamp_nsec(image);
}

int shim_capture(const struct k4a_api *api, k4a_handle device, int32_t timeout_ms, struct shim_capture *c)
{
	memset(c, 0, sizeof(*c));
	int result = api->device_get_capture(device, &c->capture, timeout_ms);
	if (result != 0)
		return result;
	get_image(api, api->capture_get_color_image(c->capture), &c->color);
	get_image(api, api->capture_get_depth_image(c->capture), &c->depth);
	return 0;
}

void shim_release(const struct k4a_api *api, struct shim_capture *c)
{
	if (c->color.image)
		api->image_release(c->color.image);
	if (c->depth.image)
		api->image_release(c->depth.image);
	if (c->capture)
		api->capture_release(c->capture);
	memset(c, 0, sizeof(*c));
}
