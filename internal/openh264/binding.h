// The decoding part of libopenh264's C API, declared here so that its headers are not needed. The layouts
// are those of wels/codec_api.h since version 2.0 (libopenh264.so.5).
#ifndef HOLOCAST_OPENH264_BINDING_H
#define HOLOCAST_OPENH264_BINDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct openh264_param {
	char *reconstruction;
	unsigned cpu_load;
	unsigned char dq_layer;
	int concealment; // 0: none
	bool parse_only;
	struct {
		unsigned size;
		int type; // 0: AVC
	} video;
};

struct openh264_picture {
	int ready;
	unsigned long long in_time, out_time;
	int width, height, format, stride[2];
	uint8_t *plane[3];
};

struct openh264_methods;
typedef const struct openh264_methods *openh264_decoder;
struct openh264_methods {
	long (*initialize)(openh264_decoder *, const struct openh264_param *);
	long (*uninitialize)(openh264_decoder *);
	void (*decode_frame)(void);
	int (*decode_no_delay)(openh264_decoder *, const unsigned char *, int, unsigned char **,
			       struct openh264_picture *);
	void (*decode_frame2)(void);
	void (*flush)(void);
	void (*parse)(void);
	void (*decode_ex)(void);
	long (*set_option)(openh264_decoder *, int, void *);
	long (*get_option)(openh264_decoder *, int, void *);
};

// Returns NULL and sets why to the loader's message if the library is missing or lacks a function.
void *openh264_load(const char *name, const char **why);
openh264_decoder *openh264_new(void);
void openh264_free(openh264_decoder *d);
// Returns the decoder's state; 0 means no error.
int openh264_decode(openh264_decoder *d, const uint8_t *data, int length, struct openh264_picture *p);

#endif
