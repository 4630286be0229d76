// Per-pixel loops of the mapper. Depth images are uint16 millimetres, row-major, 0 = no reading.
// The compiler vectorises this plain C; on x86-64 each function also has an AVX2 version, selected
// when the program is loaded.
#ifndef HOLOCAST_DEPTHMAP_KERNELS_H
#define HOLOCAST_DEPTHMAP_KERNELS_H

#include <stdint.h>

// Slices are passed as separate parameters, never in a struct, as cgo's pointer rules require.

// A lens (internal/camera's Brown–Conrady model) at the sampled image's size, and the transform
// from depth camera space to its space.
struct lens {
	float r[9];
	float tx, ty, tz; // millimetres
	float fx, fy, cx, cy;
	float k[6], p1, p2;
	float max_r2; // squared MaxRadius
	int32_t width, height;
};

// A box in studio space and the depth camera's pose: r rotates a ray of the depth camera, t is its
// origin. All lengths are in millimetres.
struct box {
	float r[9], t[3], min[3], max[3];
};

// Layout of a planar colour image. A pixel's luma is y[row*y_stride + column*y_step]; its chroma is
// cb and cr [(row>>shift_y)*c_stride + (column>>shift_x)*c_step].
struct layout {
	int32_t y_stride, c_stride, y_step, c_step, shift_x, shift_y;
	int32_t width, height;
	int32_t limited; // luma is 16–235 (NV12, YUY2), otherwise 0–255 (JPEG)
	int32_t padded;  // steps are 1, samples are full range, 4 bytes after each plane are readable
};

// Positions in the colour image are in units of a sixteenth of a pixel.
enum { SUBPIXEL = 16, OUTSIDE = 0xffff };

// Depth buffer of the colour camera for the occlusion test. Its cells are somewhat wider than a
// depth pixel appears in the colour image, so that a surface leaves no gaps. A point is hidden if
// it is farther than the nearest depth by more than slack + nearest/2^SLACK_SHIFT millimetres,
// which covers sensor noise and the slope of a surface within a cell.
struct cover {
	int32_t cells; // cells per subpixel, times 65536
	int32_t width; // cells in a row of the buffer
	int32_t slack;
};

enum { SLACK_SHIFT = 5 };

// project computes the colour image position of each of n depth pixels, with u = OUTSIDE if there
// is none. x and y are the rays of the depth pixels: pixel i at depth d is the point (x[i]d, y[i]d,
// d) in depth camera space. x is NaN for a pixel without a ray.
void project(const uint16_t *depth, int32_t n, const float *x, const float *y,
	     const struct lens *lens, uint16_t *u, uint16_t *v);

// project_vertices computes the positions as float, including those outside the image, and the
// distance zc from the lens; zc is 0 if there is no point.
void project_vertices(const uint16_t *depth, int32_t n, const float *x, const float *y,
		      const struct lens *lens, float *u, float *v, float *zc);

// uncover clears the n + 1 cells of the buffer of struct cover.
void uncover(uint16_t *zbuf, int32_t n);

// splat records n depth pixels in the buffer.
void splat(const uint16_t *depth, const uint16_t *u, const uint16_t *v, int32_t n,
	   const struct cover *cover, uint16_t *zbuf);

// sample_planes and sample_bgra compute the colour of each pixel, with bilinear luma (or BGRA) and
// nearest chroma. They set depth to 0 where the colour camera does not see the point.
void sample_planes(uint16_t *depth, const uint16_t *u, const uint16_t *v, int32_t n,
		   const struct cover *cover, const uint16_t *zbuf, const uint8_t *y,
		   const uint8_t *cb, const uint8_t *cr, const struct layout *layout, uint8_t *rgb);
void sample_bgra(uint16_t *depth, const uint16_t *u, const uint16_t *v, int32_t n,
		 const struct cover *cover, const uint16_t *zbuf, const uint8_t *bgra,
		 int32_t width, uint8_t *rgb);

// planes_to_rgb and bgra_to_rgb convert an entire image.
void planes_to_rgb(const uint8_t *y, const uint8_t *cb, const uint8_t *cr,
		   const struct layout *layout, uint8_t *rgb);
void bgra_to_rgb(const uint8_t *bgra, int32_t n, uint8_t *rgb);

// recolor maps the levels of n RGB pixels with depth by a table for each channel.
void recolor(const uint16_t *depth, uint8_t *rgb, int32_t n, const uint8_t *red,
	     const uint8_t *green, const uint8_t *blue);

// edges marks the points on a surface's edge, with a hole or a depth step among their eight
// neighbours, and the image's border. Rows are stride pixels apart.
void edges(const uint16_t *depth, int32_t width, int32_t height, int32_t stride, uint8_t *edge);

// inset copies to each point that edges marked the colour of one that is not marked on the same
// surface, radius pixels away or else one more. It changes none without such a point, or near the
// border.
void inset(const uint16_t *depth, const uint8_t *edge, int32_t width, int32_t height,
	   int32_t stride, int32_t radius, uint8_t *rgb);

// warp renders the depth image as triangles between neighbouring pixels into a width×height buffer
// of doubled nearest depths. The lowest bit marks points that clipping removes after they have
// occluded others; kept is depth after clipping. A triangle that spans more than max_ratio of its
// depth crosses an edge and is not drawn.
void warp(const uint16_t *kept, const float *u, const float *v, const float *zc, int32_t dw,
	  int32_t dh, float max_ratio, uint32_t *zbuf, int32_t width, int32_t height);

// resolve converts warp's buffer of n pixels to depth.
void resolve(const uint32_t *zbuf, int32_t n, uint16_t *depth);

// clip_range and clip_box zero the pixels outside a depth range (limits included) or a box. x and y
// are the depth camera's rays.
void clip_range(uint16_t *depth, int32_t n, uint16_t min, uint16_t max);
void clip_box(uint16_t *depth, int32_t n, const float *x, const float *y, const struct box *box);

// erode zeroes pixels whose (2·radius+1)² window holds a hole or a reading more than step nearer.
// tmp and low have width×height elements.
void erode(uint16_t *depth, int32_t width, int32_t height, int32_t radius, int32_t step,
	   uint16_t *tmp, uint16_t *low);

// grazing copies in to out, leaving out pixels whose neighbours on both sides, in any of the four
// directions through the pixel, are a hole or differ by more than depth·slope/65536 (11/8 of it
// diagonally), unless both are holes. slope has an element for each pixel.
void grazing(const uint16_t *in, uint16_t *out, int32_t width, int32_t height,
	     const uint16_t *slope);

// isolated copies in to out, leaving out pixels with fewer than min_neighbors other pixels within
// ±band in their (2·radius+1)² window. padded has (width+2·radius)×(height+2·radius) elements.
void isolated(const uint16_t *in, uint16_t *out, int32_t width, int32_t height, int32_t radius,
	      int32_t min_neighbors, int32_t band, uint16_t *padded);

#endif
