// Program of the 360° video's pass, for the built-in pipeline and URP: limited to their common macros
// and variables. Include UnityCG.cginc or URP's Core.hlsl first.
#ifndef HOLOCAST_SPHERE_PASS_INCLUDED
#define HOLOCAST_SPHERE_PASS_INCLUDED

#include "Packages/dev.holocast.client/Shaders/HolocastPoints.hlsl"
#include "Packages/dev.holocast.client/Shaders/HolocastSphere.hlsl"

Texture2D<float> _HolocastLuma;
Texture2D<float> _HolocastCb;
Texture2D<float> _HolocastCr;
SamplerState sampler_HolocastLuma; // shared by all three textures
float _HolocastEyes;
float _HolocastFullRange;
float _HolocastRed;
float _HolocastBlue;

struct Input
{
    uint vertex : SV_VertexID;
    UNITY_VERTEX_INPUT_INSTANCE_ID
};

struct Varyings
{
    float4 position : SV_POSITION;
    float3 direction : TEXCOORD0;
    UNITY_VERTEX_OUTPUT_STEREO
};

Varyings Vertex(Input input)
{
    Varyings output = (Varyings)0;
    UNITY_SETUP_INSTANCE_ID(input);
    UNITY_INITIALIZE_VERTEX_OUTPUT_STEREO(output);
    output.direction = HolocastBoxCorner(input.vertex);
    float3 world = mul((float3x3)unity_ObjectToWorld, output.direction);
    #if UNITY_REVERSED_Z
    output.position = HolocastFarAway(world, UNITY_MATRIX_V, UNITY_MATRIX_P, 0.0);
    #else
    output.position = HolocastFarAway(world, UNITY_MATRIX_V, UNITY_MATRIX_P, 1.0);
    #endif
    return output;
}

half4 Fragment(Varyings input) : SV_Target
{
    UNITY_SETUP_STEREO_EYE_INDEX_POST_VERTEX(input);
    float eye = min(float(unity_StereoEyeIndex), _HolocastEyes - 1.0);
    uint width, lumaRows, colorRows;
    _HolocastLuma.GetDimensions(width, lumaRows);
    _HolocastCb.GetDimensions(width, colorRows);
    float2 at = HolocastEquirect(input.direction);
    float2 luma = HolocastOfEye(at, eye, _HolocastEyes, float(lumaRows));
    float2 color = HolocastOfEye(at, eye, _HolocastEyes, float(colorRows));
    float3 samples = float3(
        _HolocastLuma.SampleLevel(sampler_HolocastLuma, luma, 0.0),
        _HolocastCb.SampleLevel(sampler_HolocastLuma, color, 0.0),
        _HolocastCr.SampleLevel(sampler_HolocastLuma, color, 0.0));
    float3 srgb = HolocastColor(samples, _HolocastFullRange, _HolocastRed, _HolocastBlue);
    #if defined(UNITY_COLORSPACE_GAMMA)
    return half4(half3(srgb), 1.0);
    #else
    return half4(half3(HolocastLinear(srgb)), 1.0);
    #endif
}

#endif
