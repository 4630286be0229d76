// Per-pixel loops of the mapper. Depth images are uint16 millimetres, row-major,
// 0 = no reading. Plain C that the compiler vectorises; on x86-64 each function is
// built for AVX2 as well and the better one is chosen when the program is loaded.
#ifndef HOLOCAST_CLOUD_KERNELS_H
#define HOLOCAST_CLOUD_KERNELS_H

#include <stdint.h>

// Slices are passed one by one, never inside a struct, as cgo's pointer rules ask.

// A lens (internal/camera's Brown–Conrady model) at the size of the image that is
// sampled, and the motion from the depth camera's space into its own.
struct lens {
	float r[9];
	float tx, ty, tz; // millimetres
	float fx, fy, cx, cy;
	float k[6], p1, p2;
	float max_r2; // squared MaxRadius
	int32_t width, height;
};

// A box in studio space and the depth camera's pose there: r rotates a ray of the
// depth camera, t is its origin. All in millimetres.
struct box {
	float r[9], t[3], min[3], max[3];
};

// Layout of a colour image in planes. A pixel's luma is y[row*y_stride + column*y_step]; its
// chroma is cb and cr [(row>>shift_y)*c_stride + (column>>shift_x)*c_step].
struct layout {
	int32_t y_stride, c_stride, y_step, c_step, shift_x, shift_y;
	int32_t width, height;
	int32_t limited; // luma 16–235, as NV12 and YUY2 have it; else 0–255 (JPEG)
	int32_t padded;  // steps are 1, range is full, 4 bytes beyond each plane are readable
};

// Positions in the colour image are in sixteenths of a pixel.
enum { SUBPIXEL = 16, OUTSIDE = 0xffff };

// What is nearest in each direction of the colour camera: a buffer of depths whose
// cells are somewhat wider than a depth pixel appears there, so that a surface
// leaves no gaps. A point is hidden if it is farther than the nearest by more than
// slack + nearest/2^SLACK_SHIFT millimetres: more than the sensor's noise and the
// slope of a surface within a cell.
struct cover {
	int32_t cells; // cells per subpixel, times 65536
	int32_t width; // cells in a row of the buffer
	int32_t slack;
};

enum { SLACK_SHIFT = 5 };

// project: where the lens sees each of n depth pixels, OUTSIDE in u if nowhere. x and
// y are the rays of the depth pixels: the point of pixel i at depth d is (x[i]d, y[i]d,
// d) in the depth camera's space. x is NaN where there is no ray.
void project(const uint16_t *depth, int32_t n, const float *x, const float *y,
	     const struct lens *lens, uint16_t *u, uint16_t *v);

// project_vertices: the same in float, also outside the image, with the distance zc
// from the lens; zc is 0 if there is no point.
void project_vertices(const uint16_t *depth, int32_t n, const float *x, const float *y,
		      const struct lens *lens, float *u, float *v, float *zc);

// uncover: empties the buffer of struct cover: n cells and one more.
void uncover(uint16_t *zbuf, int32_t n);

// splat: records n depth pixels in it.
void splat(const uint16_t *depth, const uint16_t *u, const uint16_t *v, int32_t n,
	   const struct cover *cover, uint16_t *zbuf);

// sample_planes, sample_bgra: the colour of each pixel, luma (or all of BGRA)
// bilinear, chroma the nearest sample. Depth becomes 0 where the colour camera does
// not see the point.
void sample_planes(uint16_t *depth, const uint16_t *u, const uint16_t *v, int32_t n,
		   const struct cover *cover, const uint16_t *zbuf, const uint8_t *y,
		   const uint8_t *cb, const uint8_t *cr, const struct layout *layout, uint8_t *rgb);
void sample_bgra(uint16_t *depth, const uint16_t *u, const uint16_t *v, int32_t n,
		 const struct cover *cover, const uint16_t *zbuf, const uint8_t *bgra,
		 int32_t width, uint8_t *rgb);

// planes_to_rgb, bgra_to_rgb: a whole image.
void planes_to_rgb(const uint8_t *y, const uint8_t *cb, const uint8_t *cr,
		   const struct layout *layout, uint8_t *rgb);
void bgra_to_rgb(const uint8_t *bgra, int32_t n, uint8_t *rgb);

// warp: renders the depth image as triangles between neighbouring pixels into a
// width×height buffer of nearest depths ×2, the lowest bit set for points that
// clipping removes after they have occluded others. kept is depth after
// clipping. A triangle spanning more than max_ratio of its depth is an edge of two
// surfaces and not drawn.
void warp(const uint16_t *kept, const float *u, const float *v, const float *zc, int32_t dw,
	  int32_t dh, float max_ratio, uint32_t *zbuf, int32_t width, int32_t height);

// resolve: depth out of warp's buffer of n pixels.
void resolve(const uint32_t *zbuf, int32_t n, uint16_t *depth);

// clip_range, clip_box: zero the pixels outside. x and y are the depth camera's rays.
void clip_range(uint16_t *depth, int32_t n, uint16_t min, uint16_t max);
void clip_box(uint16_t *depth, int32_t n, const float *x, const float *y, const struct box *box);

// erode: zeroes pixels whose (2·radius+1)² window holds a hole or a reading more
// than step nearer. tmp and low have width×height elements.
void erode(uint16_t *depth, int32_t width, int32_t height, int32_t radius, int32_t step,
	   uint16_t *tmp, uint16_t *low);

// isolated: out is in without the pixels that have fewer than min_neighbors others
// within ±band in their (2·radius+1)² window. padded has
// (width+2·radius)×(height+2·radius) elements.
void isolated(const uint16_t *in, uint16_t *out, int32_t width, int32_t height, int32_t radius,
	      int32_t min_neighbors, int32_t band, uint16_t *padded);

#endif
