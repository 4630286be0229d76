// C kernels of layout W (docs/spec/video-frame.md): one call per stage and frame.
#ifndef HOLOCAST_POINTVIDEO_KERNELS_H
#define HOLOCAST_POINTVIDEO_KERNELS_H

#include <stddef.h>
#include <stdint.h>

// A camera's state in the encoder. Arrays have width*height elements unless noted.
struct wv_state {
	int width, height;
	float sigma0, sigma2;      // mm, mm per mm²
	const float *level;        // 65537: level of each depth
	float *mean;               // running mean of the depth in mm
	uint8_t *count;            // captures in it, 0 for none
	uint8_t *held;             // captures since the pixel was last valid
	uint8_t *map, *previous;   // of this frame and the last
	uint8_t *moving;           // blocks of 8×8 pixels, rows of (width+7)/8
	uint8_t *near;             // blocks that move, and their neighbors
	float *shift;              // of blocks, in standard deviations
	float *offset;             // quantizer offsets of macroblocks, rows of (width+15)/16
	uint8_t *luma;             // of the depth picture, rows of stride
	uint8_t *y, *cb, *cr;      // color picture
	uint16_t *means;           // of its samples in 1/16
	int stride;                // width rounded up to an even number
	int gate, most, most_moving, hold; // see encoder.go
	float trend, finer, drift;
};

// Averages depth (mm, 0 = none), and fills map and luma. Returns the points.
size_t wv_smooth(struct wv_state s, const uint16_t *depth);

// Averages the colors (R G B) of the pixels with depth into y, cb and cr; other samples stay. Call it
// after wv_smooth.
void wv_color(struct wv_state s, const uint8_t *rgb, const uint16_t *depth);

// Writes the map's planes; previous is NULL in a key frame. out has 3*width*height+1 bytes. Returns
// their length.
size_t wv_map(const uint8_t *map, const uint8_t *previous, int width, int height, uint8_t *out);

// Returns the bytes of the planes' runs.
size_t wv_runs(const uint8_t *raw, size_t length, int width, int height);

// Reverses wv_map. Returns the points, or -1 if the planes are invalid.
ptrdiff_t wv_unmap(const uint8_t *raw, size_t length, uint8_t *map, const uint8_t *previous, int width, int height);

// Reconstructs depth and color. depth_of has an entry for each level.
struct wv_planes {
	const uint8_t *y, *cb, *cr;
	int stride, chroma_stride;
};
void wv_restore(const uint8_t *map, int width, int height, const uint8_t *luma, int stride, struct wv_planes color,
		const uint16_t *depth_of, uint16_t *depth, uint8_t *rgb);

struct wv_zstd;
struct wv_zstd *wv_zstd_new(void);
void wv_zstd_free(struct wv_zstd *z);
// Compresses the map's planes, the runs first. Returns the length, 0 on failure.
size_t wv_compress(struct wv_zstd *z, const uint8_t *in, size_t length, size_t runs, uint8_t *out, size_t room);
// Decompresses exactly one frame of exactly room bytes. Returns NULL, or zstd's message.
const char *wv_decompress(struct wv_zstd *z, const uint8_t *in, size_t length, uint8_t *out, size_t room);
size_t wv_compress_bound(size_t length);

#endif
