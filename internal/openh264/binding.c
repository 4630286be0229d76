#include "binding.h"

#include <dlfcn.h>
#include <string.h>

enum { TRACE_LEVEL = 9 }; // DECODER_OPTION_TRACE_LEVEL

static long (*create)(openh264_decoder **);
static void (*destroy)(openh264_decoder *);

void *openh264_load(const char *name, const char **why)
{
	void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		*why = dlerror();
		return NULL;
	}
	void *c = dlsym(library, "WelsCreateDecoder"), *d = dlsym(library, "WelsDestroyDecoder");
	if (!c || !d) {
		*why = "it has no decoder";
		dlclose(library);
		return NULL;
	}
	memcpy(&create, &c, sizeof c);
	memcpy(&destroy, &d, sizeof d);
	return library;
}

openh264_decoder *openh264_new(void)
{
	openh264_decoder *d = NULL;
	if (create(&d) || !d)
		return NULL;
	int quiet = 0;
	(*d)->set_option(d, TRACE_LEVEL, &quiet);
	struct openh264_param p = {.cpu_load = 0, .dq_layer = 0xff};
	p.video.size = sizeof p.video;
	if ((*d)->initialize(d, &p)) {
		destroy(d);
		return NULL;
	}
	return d;
}

void openh264_free(openh264_decoder *d)
{
	if (!d)
		return;
	(*d)->uninitialize(d);
	destroy(d);
}

int openh264_decode(openh264_decoder *d, const uint8_t *data, int length, struct openh264_picture *p)
{
	unsigned char *planes[3] = {NULL};
	memset(p, 0, sizeof *p);
	int state = (*d)->decode_no_delay(d, data, length, planes, p);
	if (p->ready == 1)
		memcpy(p->plane, planes, sizeof planes);
	return state;
}
