// Draws a frame's points as squares of a static mesh: four vertices per point, identified by
// SV_VertexID. Geometry shaders and procedural draws lose an eye on devices. Point sprites fetch each
// point once instead of four times (on lavapipe: same picture, 45 % of the processor time), but
// Direct3D 11 has none, and Vulkan's need the device feature largePoints, untested with Unity. Writes
// depth, which the headset's reprojection needs.
Shader "Holocast/Points"
{
    SubShader
    {
        Tags { "RenderType" = "Opaque" "Queue" = "Geometry" "DisableBatching" = "True" "IgnoreProjector" = "True" }

        Pass
        {
            Cull Off
            ZWrite On
            ZTest LEqual

            CGPROGRAM
            #pragma target 4.5
            #pragma vertex Vertex
            #pragma fragment Fragment
            #pragma multi_compile_instancing
            #pragma multi_compile_local _ HOLOCAST_CLOUD
            #include "UnityCG.cginc"
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
                Varyings output;
                UNITY_SETUP_INSTANCE_ID(input);
                UNITY_INITIALIZE_OUTPUT(Varyings, output);
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

            half4 Fragment(Varyings input) : SV_Target
            {
                UNITY_SETUP_STEREO_EYE_INDEX_POST_VERTEX(input);
                return half4(input.color, 1.0);
            }
            ENDCG
        }
    }
}
