// A libk4a that needs no camera, for tests. Environment variables configure it:
//
//   FAKE_K4A_DEVICES      cameras attached, serial numbers FAKE0, FAKE1, …
//   FAKE_K4A_CALIBRATION  file with their factory document
//   FAKE_K4A_FAIL         open, serial, calibration or start: that call fails …
//   FAKE_K4A_MESSAGE      … and logs this first
//   FAKE_K4A_FRAMES       captures until the camera is unplugged
//   FAKE_K4A_PAD          bytes that follow each row of depth
//   FAKE_K4A_WRONG_SIZE   depth is two pixels high
//   FAKE_K4A_STARTS       file that gets a line for each camera started: its index and
//                         configuration
//
// Capture n has depth n+1 everywhere, colour of n+1 bytes of value n, a device time of 200 ms·n;
// every fourth has no depth, every third no colour. A device that is closed while a capture or
// one of its images is held aborts the program.
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct config {
	int color_format, color_resolution, depth_mode, camera_fps;
	bool synchronized_images_only;
	int32_t depth_delay_off_color_usec;
	int wired_sync_mode;
	uint32_t subordinate_delay_off_master_usec;
	bool disable_streaming_indicator;
};

struct image {
	uint8_t *data;
	size_t size;
	int width, height, stride;
	uint64_t device_us;
};

struct capture {
	struct image *color, *depth;
};

struct device {
	uint32_t index;
	bool started;
	struct config config;
	int frames;
};

static void (*handler)(void *, int, const char *, int, const char *);
static void *handler_context;
static atomic_int outstanding;

static int env(const char *name, int otherwise)
{
	const char *value = getenv(name);
	return value ? atoi(value) : otherwise;
}

static bool fails(const char *call)
{
	const char *fail = getenv("FAKE_K4A_FAIL"), *message = getenv("FAKE_K4A_MESSAGE");
	if (!fail || strcmp(fail, call))
		return false;
	if (handler && message) {
		handler(handler_context, 1, "fake.c", 1, message);
		handler(handler_context, 1, "fake.c", 2, "something returned failure in fake");
	}
	return true;
}

int k4a_set_debug_message_handler(void *callback, void *context, int level)
{
	(void)level;
	handler = callback;
	handler_context = context;
	return 0;
}

uint32_t k4a_device_get_installed_count(void) { return env("FAKE_K4A_DEVICES", 0); }

int k4a_device_open(uint32_t index, void **device)
{
	if (fails("open"))
		return 1;
	struct device *d = calloc(1, sizeof(*d));
	d->index = index;
	*device = d;
	return 0;
}

void k4a_device_close(void *device)
{
	struct device *d = device;
	if (outstanding || d->started) {
		fprintf(stderr, "fakek4a: closed with %d captures and images held, %s\n", outstanding,
			d->started ? "started" : "stopped");
		abort();
	}
	free(d);
}

int k4a_device_get_serialnum(void *device, char *serial, size_t *size)
{
	if (fails("serial"))
		return 1;
	*size = snprintf(serial, *size, "FAKE%u", ((struct device *)device)->index) + 1;
	return 0;
}

int k4a_device_get_raw_calibration(void *device, uint8_t *data, size_t *size)
{
	(void)device;
	FILE *f = fails("calibration") ? NULL : fopen(getenv("FAKE_K4A_CALIBRATION"), "r");
	if (!f)
		return 1;
	char text[16384];
	size_t n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	text[n++] = 0; // as the camera does
	if (!data || *size < n) {
		*size = n;
		return 2;
	}
	memcpy(data, text, n);
	*size = n;
	return 0;
}

int k4a_device_start_cameras(void *device, const struct config *config)
{
	struct device *d = device;
	if (fails("start"))
		return 1;
	d->config = *config;
	d->started = true;
	FILE *f = getenv("FAKE_K4A_STARTS") ? fopen(getenv("FAKE_K4A_STARTS"), "a") : NULL;
	if (f) {
		fprintf(f, "%u: sync %d, subordinate %u us, depth %d us, format %d\n", d->index, config->wired_sync_mode,
			config->subordinate_delay_off_master_usec, config->depth_delay_off_color_usec, config->color_format);
		fclose(f);
	}
	return 0;
}

void k4a_device_stop_cameras(void *device) { ((struct device *)device)->started = false; }

static struct image *new_image(int width, int height, int stride, size_t size, uint64_t device_us)
{
	struct image *i = calloc(1, sizeof(*i));
	*i = (struct image){calloc(1, size), size, width, height, stride, device_us};
	outstanding++;
	return i;
}

int k4a_device_get_capture(void *device, void **capture, int32_t timeout_ms)
{
	static const int widths[] = {0, 320, 640, 512, 1024}, heights[] = {0, 288, 576, 512, 1024};
	struct device *d = device;
	int n = d->frames;
	if (n >= env("FAKE_K4A_FRAMES", 1 << 30))
		return 1;
	if (d->config.wired_sync_mode == 2 && timeout_ms) { // its master never starts
		usleep(1000);
		return 2;
	}
	d->frames++;
	struct capture *c = calloc(1, sizeof(*c));
	outstanding++;
	if (n % 4 != 3) {
		int width = widths[d->config.depth_mode], height = heights[d->config.depth_mode];
		if (getenv("FAKE_K4A_WRONG_SIZE"))
			height = 2;
		int stride = 2 * width + env("FAKE_K4A_PAD", 0);
		c->depth = new_image(width, height, stride, (size_t)stride * height, 200000ull * n);
		for (int y = 0; y < height; y++)
			for (int x = 0; x < stride / 2; x++)
				((uint16_t *)(c->depth->data + (size_t)y * stride))[x] = x < width ? n + 1 : 0xffff;
	}
	if (d->config.color_resolution && n % 3 != 2) {
		c->color = new_image(1280, 720, 0, n + 1, 200000ull * n);
		memset(c->color->data, n, n + 1);
	}
	*capture = c;
	return 0;
}

void k4a_capture_release(void *capture)
{
	struct capture *c = capture;
	free(c);
	outstanding--;
}

void *k4a_capture_get_color_image(void *capture) { return ((struct capture *)capture)->color; }
void *k4a_capture_get_depth_image(void *capture) { return ((struct capture *)capture)->depth; }

uint8_t *k4a_image_get_buffer(void *image) { return ((struct image *)image)->data; }
size_t k4a_image_get_size(void *image) { return ((struct image *)image)->size; }
int k4a_image_get_width_pixels(void *image) { return ((struct image *)image)->width; }
int k4a_image_get_height_pixels(void *image) { return ((struct image *)image)->height; }
int k4a_image_get_stride_bytes(void *image) { return ((struct image *)image)->stride; }
uint64_t k4a_image_get_device_timestamp_usec(void *image) { return ((struct image *)image)->device_us; }

uint64_t k4a_image_get_system_timestamp_nsec(void *image)
{
	(void)image;
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

void k4a_image_release(void *image)
{
	struct image *i = image;
	memset(i->data, 0xee, i->size);
	free(i->data);
	free(i);
	outstanding--;
}
