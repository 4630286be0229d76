// Programs of the points' passes, for the built-in pipeline and URP: limited to their common macros
// and variables. Include UnityCG.cginc or URP's Core.hlsl first.
#ifndef HOLOCAST_POINTS_PASS_INCLUDED
#define HOLOCAST_POINTS_PASS_INCLUDED

#include "Packages/dev.holocast.client/Shaders/HolocastPoints.hlsl"

#if defined(HOLOCAST_CLOUD)
StructuredBuffer<uint> _HolocastWords; // three per point
#else
StructuredBuffer<uint2> _HolocastWords;
Texture2D<float2> _HolocastRays;
#endif
float _HolocastEdge;

struct Input
{
    uint vertex : SV_VertexID;
    UNITY_VERTEX_INPUT_INSTANCE_ID
};

struct Varyings
{
    float4 position : SV_POSITION;
    nointerpolation half3 color : COLOR0;
    UNITY_VERTEX_OUTPUT_STEREO
};

Varyings Vertex(Input input)
{
    Varyings output = (Varyings)0;
    UNITY_SETUP_INSTANCE_ID(input);
    UNITY_INITIALIZE_VERTEX_OUTPUT_STEREO(output);

    #if defined(HOLOCAST_CLOUD)
    uint at = 3u * (input.vertex >> 2);
    HolocastPoint p = HolocastCloudPoint(
        uint3(_HolocastWords[at], _HolocastWords[at + 1u], _HolocastWords[at + 2u]));
    #else
    uint2 words = _HolocastWords[input.vertex >> 2];
    float2 ray = _HolocastRays.Load(int3(HolocastPixel(words), 0));
    if (!HolocastHasRay(ray))
    {
        output.position = HolocastNowhere();
        return output;
    }
    HolocastPoint p = HolocastGridPoint(words, ray);
    #endif

    float4x4 modelView = mul(UNITY_MATRIX_V, unity_ObjectToWorld);
    output.position = HolocastCorner(
        p, input.vertex & 3u, modelView, UNITY_MATRIX_P, _HolocastEdge, _ScreenParams.y);
    #if defined(UNITY_COLORSPACE_GAMMA)
    output.color = half3(p.color);
    #else
    output.color = half3(HolocastLinear(p.color));
    #endif
    return output;
}

// Points behind the light's near plane cast shadows, too.
Varyings ShadowVertex(Input input)
{
    Varyings output = Vertex(input);
    #if UNITY_REVERSED_Z
    output.position.z = min(output.position.z, output.position.w * UNITY_NEAR_CLIP_VALUE);
    #else
    output.position.z = max(output.position.z, output.position.w * UNITY_NEAR_CLIP_VALUE);
    #endif
    return output;
}

half4 Fragment(Varyings input) : SV_Target
{
    UNITY_SETUP_STEREO_EYE_INDEX_POST_VERTEX(input);
    return half4(input.color, 1.0);
}

half4 DepthFragment(Varyings input) : SV_Target
{
    return half4(input.position.z, 0.0, 0.0, 0.0);
}

// The squares face the eye.
half4 NormalFragment(Varyings input) : SV_Target
{
    UNITY_SETUP_STEREO_EYE_INDEX_POST_VERTEX(input);
    return half4(UNITY_MATRIX_V[2].xyz, 0.0);
}

#endif
