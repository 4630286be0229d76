// Encodes and decodes the planes of docs/spec/point-cloud-frame.md, zstd included. One call handles
// one object.
#ifndef HOLOCAST_POINTCLOUD_KERNELS_H
#define HOLOCAST_POINTCLOUD_KERNELS_H

#include <stddef.h>
#include <stdint.h>

enum {
	HCPF_OK = 0,
	HCPF_NO_MEMORY = -1,
	HCPF_BAD_ZSTD = -2,       // not one zstd frame, or damaged
	HCPF_BAD_RAW_LENGTH = -3, // the frame has a different size
	HCPF_BAD_PLANES = -4,     // the planes do not match the header
};

// A share of a frame: in a layout on a grid the pixels (dx + i*step, dy + j*step), otherwise the
// points index + i*stride.
struct hcpf_frame {
	int layout; // of the header

	uint16_t *depth; // width*height
	uint8_t *color;  // 3*width*height
	int width, height, dx, dy, step;

	int16_t *xyz;  // 3*points
	uint8_t *rgb;  // 3*points
	size_t points; // of the entire cloud
	size_t index, stride;
};

struct hcpf_result {
	int error;
	const char *zstd;    // zstd's message, or NULL
	const uint8_t *data; // encoder: the body
	size_t length;
	uint32_t points, raw_length;
};

struct hcpf_encoder;
struct hcpf_decoder;

// level is zstd's level; 0 is best for every layout.
struct hcpf_encoder *hcpf_encoder_new(int level);
void hcpf_encoder_free(struct hcpf_encoder *e);

// The body belongs to the encoder and is valid until its next call.
struct hcpf_result hcpf_encode(struct hcpf_encoder *e, struct hcpf_frame f);

struct hcpf_decoder *hcpf_decoder_new(void);
void hcpf_decoder_free(struct hcpf_decoder *d);

// The grid's pixels of this description must be empty. A cloud must hold exactly as many points as the object.
struct hcpf_result hcpf_decode(struct hcpf_decoder *d, struct hcpf_frame f, uint32_t points, uint32_t raw_length,
	const uint8_t *src, size_t length);

#endif
