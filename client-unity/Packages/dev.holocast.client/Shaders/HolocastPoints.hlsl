// Position and color of a frame's points, and the corners of the square drawn for each. Independent
// of any engine: HolocastPoints.shader includes it for Unity, and client-unity/verify runs it on
// Vulkan and compares the result with a renderer in Go.
//
// A point is two or three 32-bit words, as the native library writes them (holocast.h, HcFrame):
//
//   grid (layout A)    x | y << 12 | R << 24 of the pixel; depth mm | G << 16 | B << 24
//   cloud (B and C)    X | Y << 16; Z | R << 16 | G << 24; B     (16 bits, two's complement, mm)
#ifndef HOLOCAST_POINTS_INCLUDED
#define HOLOCAST_POINTS_INCLUDED

struct HolocastPoint
{
    float3 position; // camera coordinates: x right, y down, z forward; mm
    float3 color;    // sRGB, 0 to 1
};

// Pixel coordinates of a grid point.
uint2 HolocastPixel(uint2 words)
{
    return uint2(words.x & 0xfffu, (words.x >> 12) & 0xfffu);
}

// Unpacks a grid point. ray: X and Y at z = 1 of its pixel.
HolocastPoint HolocastGridPoint(uint2 words, float2 ray)
{
    HolocastPoint p;
    float z = float(words.y & 0xffffu);
    p.position = float3(ray * z, z);
    p.color = float3(uint3(words.x >> 24, (words.y >> 16) & 0xffu, words.y >> 24)) / 255.0;
    return p;
}

HolocastPoint HolocastCloudPoint(uint3 words)
{
    HolocastPoint p;
    // Sign-extend 16 bits: shift up, then arithmetically down.
    p.position = float3(int3(asint(words.x << 16), asint(words.x), asint(words.y << 16)) >> 16);
    p.color = float3(uint3((words.y >> 16) & 0xffu, words.y >> 24, words.z & 0xffu)) / 255.0;
    return p;
}

// False for pixels without a ray, which hold NaN. Compares bits, since compilers optimize x == x to
// true.
bool HolocastHasRay(float2 ray)
{
    return (asuint(ray.x) & 0x7fffffffu) <= 0x7f800000u;
}

// Clip coordinates outside every view.
float4 HolocastNowhere()
{
    return float4(2.0, 2.0, 2.0, 1.0);
}

// Corner 0 to 3 of a point's square.
//   modelView      camera to eye coordinates
//   edge           edge length of the square in mm per mm of depth: the distance between
//                  neighbouring points is z / focal, so edge = spread / focal
//   pictureHeight  pixels
float4 HolocastCorner(HolocastPoint p, uint corner, float4x4 modelView, float4x4 projection, float edge,
    float pictureHeight)
{
    float4 eye = mul(modelView, float4(p.position, 1.0));
    float scale = length(float3(modelView._m00, modelView._m10, modelView._m20));
    float size = edge * abs(p.position.z) * scale;
    // At least one pixel wide, or distant points would flicker. w is 1 in orthographic projections,
    // such as that of a directional light's shadows.
    float w = projection._m32 * eye.z + projection._m33;
    float pixel = 2.0 * abs(w) / (abs(projection._m11) * pictureHeight);
    float2 side = float2(float(corner & 1u), float((corner >> 1) & 1u)) - 0.5;
    eye.xy += side * max(size, pixel);
    return mul(projection, eye);
}

// sRGB to linear light (IEC 61966-2-1).
float3 HolocastLinear(float3 srgb)
{
    float3 low = srgb / 12.92;
    float3 high = pow((max(srgb, 0.04045) + 0.055) / 1.055, 2.4);
    return lerp(low, high, step(0.04045, srgb));
}

#endif
